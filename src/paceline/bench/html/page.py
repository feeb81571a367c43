"""The page itself: one file of HTML that asks for nothing from anywhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

from paceline.bench.html.all_numbers import every_number
from paceline.bench.html.figure import Figure, Palette, Table
from paceline.bench.html.figures_cost import cost_figure
from paceline.bench.html.figures_load import latency_figure, throughput_figure
from paceline.bench.html.figures_speed import acceptance_figure, predicted_figure, speedup_figure
from paceline.bench.html.source import Sources, read_sources

FIGURES = (
    speedup_figure,
    acceptance_figure,
    cost_figure,
    latency_figure,
    throughput_figure,
    predicted_figure,
)


def figures_of(sources: Sources) -> list[Figure]:
    """Return all figures, those without data too: they say what is missing."""
    palette = Palette.of(sources)
    return [make(sources, palette) for make in FIGURES]


def render_page(paths: Sequence[Path], title: str = "Paceline bench report") -> str:
    """Return the report on result files as HTML. Raises ``ConfigError`` for a file that is none."""
    from jinja2 import Environment

    sources = read_sources(paths)
    folder = resources.files("paceline.bench.html")
    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        (folder / "page.html.j2").read_text(encoding="utf-8")
    )
    return template.render(
        title=title,
        style=(folder / "page.css").read_text(encoding="utf-8"),
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        figures=figures_of(sources),
        summary=_summary(sources),
        files=_files_table(sources),
        everything=every_number(sources),
        notes=sources.notes,
    )


def _summary(sources: Sources) -> list[tuple[str, str]]:
    """Return the few numbers a reader looks for first: the best drafter, and the worst case of any."""
    found: list[tuple[str, str]] = []
    drafted = [case for case in sources.cases if case.drafter != "none"]
    if drafted:
        best = max(drafted, key=lambda case: case.data["speedup"])
        worst = min(drafted, key=lambda case: case.data["speedup"])
        found.append((f"{best.data['speedup']:.2f}×", f"highest speed-up: {best.workload}, {best.drafter}"))
        found.append((f"{worst.data['speedup']:.2f}×", f"lowest speed-up: {worst.workload}, {worst.drafter}"))
        shares = [c.get("identical_share") for c in drafted if c.get("identical_share") is not None]
        if shares:
            found.append((f"{min(shares):.0%}", "of replies are identical to plain decoding's, at the least"))
    if sources.points:
        most = max(sources.points, key=lambda point: point.data["tokens_per_s"])
        found.append((f"{most.data['tokens_per_s']:,.0f}", f"most tokens/s of a server: {most.server}"))
    return found


def _words(value: object) -> str:
    """Return a setting for reading: lists and objects without the punctuation of JSON."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_words(part)}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return value if isinstance(value, str) else json.dumps(value)


def _files_table(sources: Sources) -> Table:
    rows = [
        [name, kind, key, _words(value)]
        for name, kind, facts in sources.facts
        for key, value in (facts or {"–": "no settings in this file"}).items()
    ]
    return Table("How the figures were made", ("file", "kind", "what", "value"), rows, numeric=False)
