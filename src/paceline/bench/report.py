"""Results for reading (rich tables) and for keeping (JSON)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from paceline.bench.environment import Environment
from paceline.bench.records import VARIED_SHARE, RunResult, Summary
from paceline.bench.runner import BenchSettings

if TYPE_CHECKING:
    from rich.table import Table


def as_json(
    results: Sequence[RunResult], settings: BenchSettings, environment: Environment
) -> dict[str, Any]:
    """Return what ``--json`` writes.

    Each entry of ``runs`` holds the fields of :class:`RunResult`, those of the summary of all replies, and
    under ``varied`` those of the summary of the varied ones (null when there are none).
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
            }
            for result in results
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
        f"{summary.identical_share:.0%}",
        "·".join(f"{100 * part / summary.seconds:.0f}" for part in parts) + " %",
    ]
