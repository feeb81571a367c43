"""The bars of serving, each judged by the median of its repeats."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from serving.measure import ENGINE, LLAMA, OURS, PLAIN, Plan, Point, Results, of_systems
from serving.prompts import halves


@dataclass(frozen=True, slots=True)
class Bar:
    """``values``: one a repeat. ``at_least``: whether more is better."""

    name: str
    values: tuple[float, ...]
    bar: float
    at_least: bool
    percent: bool = False

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def is_met(self) -> bool:
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    def row(self) -> str:
        """Return a row of the table."""
        shown = [self._shown(v) for v in (self.value, min(self.values), max(self.values))]
        sign = "≥" if self.at_least else "≤"
        met = "met" if self.is_met else "NOT MET"
        measured = f"{shown[0]} ({shown[1]} to {shown[2]})"
        return f"| {self.name} | {measured} | {sign} {self._shown(self.bar)} | {met} |"

    def _shown(self, value: float) -> str:
        return f"{value * 100:.1f} %" if self.percent else f"{value:.2f} ×"


Measure = Callable[[dict[str, Point]], float]


def all_bars(plan: Plan, results: Results) -> list[Bar]:
    """Return every bar that was measured."""
    return [*_load_bars(plan, results), *_ttft_bars(results)]


def _load_bars(plan: Plan, results: Results) -> Iterator[Bar]:
    def values(width: int, needed: Sequence[str], measure: Measure) -> tuple[float, ...]:
        repeats = [of_systems(results, width, repeat) for repeat in range(plan.repeats)]
        return tuple(measure(points) for points in repeats if all(name in points for name in needed))

    for width in plan.widths:
        if width == 1:
            name, measure, bar = (
                "streamed decoding, chat, 1 at once: paceline ÷ llama-server",
                _decode_ratio,
                2.5,
            )
        else:
            name, measure, bar = f"total tokens/s, {width} at once: paceline ÷ llama-server", _rate_ratio, 3.0
        if against := values(width, (OURS, LLAMA), measure):
            yield Bar(name, against, bar, at_least=True)
        if cost := values(width, (OURS, ENGINE), _http_cost):
            most = 0.05 if width == 1 else 0.10
            yield Bar(f"HTTP and streaming, {width} at once", cost, most, at_least=False, percent=True)
        for kind in ("token", "step"):
            if gaps := values(width, (OURS, PLAIN), lambda points, kind=kind: _gap_ratio(points, kind)):  # type: ignore[misc]
                what = "gap per token" if kind == "token" else "gap between pieces of text"
                label = f"p99 {what}, {width} at once: with ÷ without speculation"
                yield Bar(label, gaps, 1.5, at_least=False)


def _ttft_bars(results: Results) -> Iterator[Bar]:
    pairs = [times for times in results.ttft if LLAMA in times]
    if pairs:
        ratios = tuple(statistics.median(t[OURS]) / statistics.median(t[LLAMA]) for t in pairs)
        yield Bar("first token of a 200-token prompt: paceline ÷ llama-server", ratios, 0.5, at_least=False)
    if results.shared:
        both = [tuple(map(statistics.median, halves(times))) for times in results.shared]
        ratios = tuple(first / second for first, second in both)
        yield Bar("first token behind a repeated system prompt: first ÷ second", ratios, 8.0, at_least=True)


def _decode_ratio(points: dict[str, Point]) -> float:
    return _rate_over(points[OURS], points[LLAMA])


def _rate_ratio(points: dict[str, Point]) -> float:
    return points[OURS].rate / points[LLAMA].rate


def _http_cost(points: dict[str, Point]) -> float:
    """Return what the server, the wire and the client add to the time of a token behind the first piece.

    What comes before is in the time to the first token, and depends on how prompts arrive: the engine alone
    is given its first ones at once, and reads them with nobody to delay.
    """
    return _rate_over(points[ENGINE], points[OURS]) - 1.0


def _rate_over(mine: Point, theirs: Point) -> float:
    """Return how many times as fast one decodes: the median over prompts that were asked in turns."""
    pairs = zip(mine.decode_rates, theirs.decode_rates, strict=True)
    return statistics.median(one / other for one, other in pairs if one and other)  # 0: came in one piece


def _gap_ratio(points: dict[str, Point], kind: str) -> float:
    return p99(points[OURS], kind) / p99(points[PLAIN], kind)


def p99(point: Point, kind: str) -> float:
    """Return the 99th percentile of a point's gaps, seconds."""
    return float(np.percentile(point.token_gaps if kind == "token" else point.step_gaps, 99))


def point_rows(results: Results) -> list[str]:
    """Return the figures behind the bars, a row for each point."""
    rows = [
        "| repeat | at once | system | tokens | tokens/s | decode/s each "
        "| p99 token ms | p99 piece ms | client % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for point in results.points:
        cells = [
            f"{point.output_tokens}",
            f"{point.rate:.1f}",
            f"{statistics.median(point.decode_rates):.1f}",
        ]
        if point.step_gaps:
            cells += [f"{p99(point, kind) * 1e3:.1f}" for kind in ("token", "step")]
            cells += [f"{point.client_seconds / point.seconds * 100:.0f}"]
        else:
            cells += [""] * 3
        rows.append(f"| {point.repeat + 1} | {point.width} | {point.system} | {' | '.join(cells)} |")
    return rows
