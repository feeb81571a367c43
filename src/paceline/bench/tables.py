"""Results as rich tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from paceline.bench.latency import Percentiles
from paceline.bench.means import Mean, mean_over_workloads
from paceline.bench.records import VARIED_SHARE, RunResult, Summary

if TYPE_CHECKING:
    from rich.table import Table

T = TypeVar("T")


def cost_per_million_tokens(price_per_hour: float, tokens_per_s: float) -> float:
    """Return what a million output tokens cost on a machine that is busy with nothing else."""
    return price_per_hour / (3600.0 * tokens_per_s) * 1e6


def speed_table(title: str, results: Sequence[RunResult]) -> Table:
    """Return the speeds of each drafter, for all replies and for the varied ones."""
    table = _empty(
        title,
        f"varied: replies with at least {VARIED_SHARE:.0%} distinct 4-grams; 95 %: interval of the speed-up; "
        "d·v·o: share of time in draft, verify, other",
        ("drafter", "replies"),
        (
            "tok/s",
            "spread",
            "speedup",
            "distinct",
            "95 %",
            "predicted",
            "tok/step",
            "accepted",
            "identical",
            "d·v·o",
        ),
    )
    for result in results:
        table.add_row(result.drafter, *_speed_cells("all", result.all_replies))
        if result.varied_replies is not None:
            table.add_row("", *_speed_cells("varied", result.varied_replies))
    return table


def wait_table(title: str, results: Sequence[RunResult], price_per_hour: float | None = None) -> Table:
    """Return what users of each drafter wait for, acceptance by depth, memory, and cost if there is a price.

    Times are p50 / p95 / p99 in milliseconds.
    """
    columns = [
        "TTFT ms",
        "TPOT ms",
        "ITL token ms",
        "ITL step ms",
        "tok/s each",
        "accepted at",
        "peak MB",
    ]
    if price_per_hour is not None:
        columns.append("cost/Mtok")
    caption = "p50 / p95 / p99 over all replies; accepted at: share of drafts kept at depth 1, 2, …"
    table = _empty(f"{title} · waiting", caption, ("drafter",), columns)
    for result in results:
        cells = _wait_cells(result.all_replies)
        if price_per_hour is not None:
            cells.append(f"{cost_per_million_tokens(price_per_hour, result.all_replies.tokens_per_s):.4g}")
        table.add_row(result.drafter, *cells)
    return table


def mean_table(results: Sequence[RunResult]) -> Table:
    """Return the table of means over the workloads."""
    table = _empty(
        "mean over workloads",
        "each workload counts the same; varied: over the workloads that have varied replies",
        ("drafter", "replies"),
        ("batch", "temp.", "workloads", "tok/step", "speedup", "lowest speedup"),
    )
    for mean in mean_over_workloads(results):
        case = [str(mean.batch), f"{mean.temperature:g}"]
        table.add_row(mean.drafter, "all", *case, *_mean_cells(mean.all_replies))
        if mean.varied_replies is not None:
            table.add_row("", "varied", *case, *_mean_cells(mean.varied_replies))
    return table


def _empty(title: str, caption: str, left: Sequence[str], right: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table


def _mean_cells(mean: Mean) -> list[str]:
    return [
        str(mean.num_workloads),
        f"{mean.tokens_per_step:.2f}",
        f"{mean.speedup:.2f}x",
        f"{mean.min_speedup:.2f}x {mean.slowest_workload}",
    ]


def _speed_cells(kind: str, summary: Summary) -> list[str]:
    low, high = summary.tokens_per_s_spread
    parts = (summary.draft_seconds, summary.verify_seconds, summary.other_seconds)
    return [
        f"{kind} {summary.num_replies}",
        f"{summary.tokens_per_s:.1f}",
        f"{low:.1f}–{high:.1f}",
        f"{summary.speedup:.2f}x",
        f"{summary.distinct_4gram_share:.0%}",
        _or_dash(summary.speedup_ci, lambda ci: f"{ci[0]:.2f}–{ci[1]:.2f}"),
        _or_dash(summary.predicted_speedup, lambda value: f"{value:.2f}x"),
        f"{summary.tokens_per_step:.2f}",
        _or_dash(summary.acceptance_rate, lambda value: f"{value:.0%}"),
        _or_dash(summary.identical_share, lambda value: f"{value:.0%}"),
        "·".join(f"{100 * part / summary.seconds:.0f}" for part in parts) + " %",
    ]


def _wait_cells(summary: Summary) -> list[str]:
    waits = summary.latencies
    times = (waits.ttft_s, waits.tpot_s, waits.itl_token_s, waits.itl_step_s)
    return [
        *(_or_dash(value, lambda p: _three(p, 1000.0)) for value in times),
        _or_dash(waits.request_tokens_per_s, lambda p: f"{p.p50:.1f}"),
        " ".join(f"{rate:.2f}".removeprefix("0") for rate in summary.acceptance_rate_at[:8]) or "–",
        _or_dash(summary.peak_memory_bytes, lambda value: f"{value / 1e6:.0f}"),
    ]


def _three(values: Percentiles, factor: float) -> str:
    scaled = (factor * value for value in (values.p50, values.p95, values.p99))
    return " / ".join(f"{value:.0f}" if value >= 100 else f"{value:.3g}" for value in scaled)


def _or_dash(value: T | None, write: Callable[[T], str]) -> str:
    return "–" if value is None else write(value)
