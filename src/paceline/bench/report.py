"""Results for reading (rich tables) and for keeping (JSON)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from paceline.bench.environment import Environment
from paceline.bench.means import Mean, mean_over_workloads
from paceline.bench.records import VARIED_SHARE, RunResult, Summary
from paceline.bench.runner import BenchSettings

if TYPE_CHECKING:
    from rich.table import Table


def as_json(
    results: Sequence[RunResult], settings: BenchSettings, environment: Environment
) -> dict[str, Any]:
    """Return what ``--json`` writes.

    Each entry of ``runs`` holds the fields of :class:`RunResult`, those of the summary of all replies, under
    ``varied`` those of the summary of the varied ones (null when there are none), and under ``categories``
    one summary for each category of a workload made of several. ``mean_over_workloads`` has one entry for
    each drafter: the fields of :class:`~paceline.bench.means.Mean` for all replies, and under ``varied`` for
    the varied ones.
    """
    return {
        "settings": asdict(settings),
        "environment": asdict(environment),
        "varied_share": VARIED_SHARE,
        "runs": [
            {
                "workload": result.workload,
                "drafter": result.drafter,
                "model": result.model,
                **asdict(result.all_replies),
                "varied": None if result.varied_replies is None else asdict(result.varied_replies),
                "categories": {name: asdict(summary) for name, summary in result.categories.items()},
            }
            for result in results
        ],
        "mean_over_workloads": [
            {
                "drafter": mean.drafter,
                "model": mean.model,
                **asdict(mean.all_replies),
                "varied": None if mean.varied_replies is None else asdict(mean.varied_replies),
            }
            for mean in mean_over_workloads(results)
        ],
    }


def result_tables(results: Sequence[RunResult]) -> list[Table]:
    """Return one table for each workload."""
    return [
        _table(workload, [result for result in results if result.workload == workload])
        for workload in dict.fromkeys(result.workload for result in results)
    ]


def _table(workload: str, results: Sequence[RunResult]) -> Table:
    from rich.table import Table

    table = Table(
        title=workload,
        title_justify="left",
        caption=f"varied: replies with at least {VARIED_SHARE:.0%} distinct 4-grams; d·v·o: share of time in "
        "draft, verify, other",
        caption_justify="left",
    )
    table.add_column("drafter")
    table.add_column("replies")
    for name in ("tok/s", "spread", "speedup", "distinct", "tok/step", "accepted", "identical", "d·v·o"):
        table.add_column(name, justify="right")
    for result in results:
        table.add_row(result.drafter, *_cells("all", result.all_replies))
        if result.varied_replies is not None:
            table.add_row("", *_cells("varied", result.varied_replies))
    return table


def mean_table(results: Sequence[RunResult]) -> Table:
    """Return the table of means over the workloads."""
    from rich.table import Table

    table = Table(
        title="mean over workloads",
        title_justify="left",
        caption="each workload counts the same; varied: over the workloads that have varied replies",
        caption_justify="left",
    )
    for name in ("drafter", "replies"):
        table.add_column(name)
    for name in ("workloads", "tok/step", "speedup", "lowest speedup"):
        table.add_column(name, justify="right")
    for mean in mean_over_workloads(results):
        table.add_row(mean.drafter, "all", *_mean_cells(mean.all_replies))
        if mean.varied_replies is not None:
            table.add_row("", "varied", *_mean_cells(mean.varied_replies))
    return table


def _mean_cells(mean: Mean) -> list[str]:
    return [
        str(mean.num_workloads),
        f"{mean.tokens_per_step:.2f}",
        f"{mean.speedup:.2f}x",
        f"{mean.min_speedup:.2f}x {mean.slowest_workload}",
    ]


def _cells(kind: str, summary: Summary) -> list[str]:
    low, high = summary.tokens_per_s_spread
    rate = summary.acceptance_rate
    parts = (summary.draft_seconds, summary.verify_seconds, summary.other_seconds)
    return [
        f"{kind} {summary.num_replies}",
        f"{summary.tokens_per_s:.1f}",
        f"{low:.1f}–{high:.1f}",
        f"{summary.speedup:.2f}x",
        f"{summary.distinct_4gram_share:.0%}",
        f"{summary.tokens_per_step:.2f}",
        "–" if rate is None else f"{rate:.0%}",
        "–" if summary.identical_share is None else f"{summary.identical_share:.0%}",
        "·".join(f"{100 * part / summary.seconds:.0f}" for part in parts) + " %",
    ]
