"""What a figure of the report is, and helpers that all of them need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from paceline.bench.html.source import Case, Sources


@dataclass(frozen=True, slots=True)
class Table:
    """``numeric``: whether all columns but the first hold numbers, set to the right."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class Chart:
    """``legend``: (series, name) of what is drawn; ``svg``: the drawing."""

    title: str
    svg: str
    legend: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """One section. ``lead`` says how to read it. ``missing``: what is not there and how to get it."""

    key: str
    title: str
    lead: str
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Palette:
    """One colour and shape for each name on the whole page."""

    numbers: Mapping[str, int]

    @classmethod
    def of(cls, sources: Sources) -> Palette:
        """Drafters come first, then servers."""
        names = [*sources.drafters, *dict.fromkeys(server_name(p.file, p.server) for p in sources.points)]
        return cls({name: number for number, name in enumerate(dict.fromkeys(names))})

    def legend(self, names: Iterable[str]) -> list[tuple[int, str]]:
        """Return the entries for ``names``, each once."""
        return [(self.numbers[name], name) for name in dict.fromkeys(names)]


def server_name(file: str, server: str) -> str:
    """Return a load series' name; the file tells runs on one server apart."""
    return f"{server}, {file}"


def settings_of(cases: Sequence[Case]) -> list[tuple[tuple[str, str, int, float], list[Case]]]:
    """Return cases by (file, model, batch, temperature): what may stand in one chart."""
    groups: dict[tuple[str, str, int, float], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.file, case.model, case.batch, case.temperature), []).append(case)
    return list(groups.items())


def setting_title(
    setting: tuple[str, str, int, float], all_settings: Sequence[tuple[str, str, int, float]]
) -> str:
    """Return what tells a setting from the others; the model where nothing else does."""
    file, model, batch, temperature = setting
    parts = [model]
    if len({other[0] for other in all_settings}) > 1:
        parts.insert(0, file)
    if len({other[2] for other in all_settings}) > 1:
        parts.append(f"batch {batch}")
    parts.append(f"temperature {temperature:g}" if temperature else "greedy")
    return " · ".join(part for part in parts if part)


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of what is there."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def depth_means(cases: Sequence[Case]) -> list[tuple[float, float, float]]:
    """Return for each depth the mean, lowest and highest ``acceptance_rate_at`` over the workloads.

    A workload whose drafts never went that deep has kept none there: it counts as 0.
    """
    rates = [list(case.get("acceptance_rate_at") or ()) for case in cases]
    rates = [rate for rate in rates if rate]
    depths = max((len(rate) for rate in rates), default=0)
    columns = [[rate[d] if d < len(rate) else 0.0 for rate in rates] for d in range(depths)]
    return [(fmean(column), min(column), max(column)) for column in columns]


def cell(value: object, form: str = ".3g") -> str:
    """Return a number for a table, and a dash for what is missing."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else format(value, form)
