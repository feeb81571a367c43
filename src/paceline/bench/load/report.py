"""A load run for reading (rich tables) and for keeping (JSON)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from paceline.bench.environment import Environment
from paceline.bench.load.driver import LoadRun
from paceline.bench.load.settings import LoadSettings
from paceline.bench.load.summary import PointSummary, summarize_point

if TYPE_CHECKING:
    from rich.table import Table

_PERCENTILES = ("p50", "p95", "p99", "mean")
LATE_SHARE = 0.1
"""A client later than this share of the median TTFT measures itself: it says so."""


def summarize_run(run: LoadRun, settings: LoadSettings) -> list[PointSummary]:
    """Return the summary of each point."""
    return [summarize_point(point, settings.objective, settings.price_per_hour) for point in run.points]


def notes_of(run: LoadRun, points: Sequence[PointSummary]) -> list[str]:
    """Return what a reader must know before believing the numbers."""
    notes = list(run.notes)
    if any(point.tokens_counted_by == "chunks" for point in points):
        notes.append(
            "the server tells no usage: tokens are counted as chunks, too few where a chunk has several"
        )
    if any(point.itl_token_from != "server counts" for point in points):
        notes.append("tokens of a chunk are not told: ITL per token is each reply's mean")
    if any(point.num_requests > run.num_prompts for point in points):
        notes.append(
            f"the {run.num_prompts} prompts came more than once: a prefix cache, or a drafter that learns "
            "from replies, answers repeats faster"
        )
    if any(point.late_s > LATE_SHARE * point.ttft_s["p50"] for point in points):
        notes.append("this client fell behind its schedule: part of the latency is its own")
    if any(point.errors for point in points):
        notes.append("failed requests are in no latency; they miss every objective")
    return notes


def as_json(run: LoadRun, settings: LoadSettings, environment: Environment) -> dict[str, Any]:
    """Return what ``--json`` writes: ``kind`` is ``load``, ``points`` hold :class:`PointSummary`.

    ``environment`` is the client's. The API key is in none of it.
    """
    points = summarize_run(run, settings)
    return {
        "kind": "load",
        "endpoint": run.server.endpoint.url,
        "server": {"dialect": run.server.dialect, "model": run.server.model},
        "settings": {**settings.to_json(), "api": run.server.endpoint.api, "num_prompts": run.num_prompts},
        "environment": asdict(environment),
        "points": [_plain_point(point) for point in points],
        "notes": notes_of(run, points),
    }


def _plain_point(point: PointSummary) -> dict[str, Any]:
    plain = asdict(point)
    if point.goodput is not None:
        plain["goodput"]["objective"] = dict(point.goodput.objective.limits)
    return plain


def throughput_table(points: Sequence[PointSummary]) -> Table:
    """Return one row for each point: how much came through."""
    caption = "tok/s per reply: the reply's tokens ÷ its end-to-end time"
    columns = ("requests", "errors", "seconds", "req/s", "tok/s", "per reply p50", "tokens per piece")
    table = _table("load", caption, columns)
    for point in points:
        pieces = point.chunks_per_reply * point.num_ok
        table.add_row(
            name_of(point),
            str(point.num_requests),
            ", ".join(f"{count} {kind}" for kind, count in point.errors.items()) or "0",
            f"{point.seconds:.1f}",
            f"{point.requests_per_s:.2f}",
            f"{point.tokens_per_s:.1f}",
            f"{point.tokens_per_s_per_request['p50']:.1f}",
            f"{point.output_tokens / pieces:.2f}",
        )
    return table


def latency_table(points: Sequence[PointSummary]) -> Table:
    """Return five rows for each point, in milliseconds."""
    table = _table("latency in ms", None, ("measure", "p50", "p95", "p99", "mean"))
    for point in points:
        measures = {
            "TTFT": point.ttft_s,
            "TPOT": point.tpot_s,
            "ITL per token": point.itl_token_s,
            "ITL per step": point.itl_step_s,
            "end to end": point.e2e_s,
        }
        for number, (name, values) in enumerate(measures.items()):
            table.add_row(
                "" if number else name_of(point),
                name,
                *("–" if values is None else f"{1e3 * values[key]:.2f}" for key in _PERCENTILES),
                end_section=number == len(measures) - 1,
            )
    return table


def extra_table(points: Sequence[PointSummary]) -> Table | None:
    """Return goodput, speculation and cost of each point; ``None`` when there is none of them."""
    if not any(p.goodput or p.speculation or p.cost_per_million_tokens for p in points):
        return None
    objectives = [str(point.goodput.objective) for point in points if point.goodput]
    caption = f"good: replies with {objectives[0]}" if objectives else None
    columns = ("good req/s", "good", "drafted", "accepted", "acceptance", "tok/step", "per million tokens")
    table = _table("goodput and speculation", caption, columns)
    for point in points:
        good, spec, cost = point.goodput, point.speculation, point.cost_per_million_tokens
        rate, length = (spec.acceptance_rate, spec.tokens_per_step) if spec else (None, None)
        table.add_row(
            name_of(point),
            "–" if good is None else f"{good.requests_per_s:.2f}",
            "–" if good is None else f"{good.share:.0%}",
            "–" if spec is None else str(spec.num_draft_tokens),
            "–" if spec is None else str(spec.num_accepted_tokens),
            "–" if rate is None else f"{rate:.0%}",
            "–" if length is None else f"{length:.2f}",
            "–" if cost is None else f"{cost:.2f}",
        )
    return table


def name_of(point: PointSummary) -> str:
    """Return what was asked of a point, in words."""
    return f"{point.rate:g} req/s" if point.rate is not None else f"{point.concurrency} in flight"


def _table(title: str, caption: str | None, columns: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column("load")
    for name in columns:
        table.add_column(name, justify="right")
    return table
