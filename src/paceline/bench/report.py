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

    replies = results[0].all_replies.num_replies
    varied = results[0].varied_replies
    table = Table(
        title=f"{workload}: {replies} replies, {varied.num_replies if varied else 0} of them varied",
        title_justify="left",
        caption=f"varied: at least {VARIED_SHARE:.0%} of the 4-grams are distinct",
        caption_justify="left",
    )
    table.add_column("drafter")
    for name in (
        "tokens/s",
        "spread",
        "speedup",
        "distinct",
        "varied tokens/s",
        "varied speedup",
        "distinct",
    ):
        table.add_column(name, justify="right")
    for name in ("tokens/step", "accepted", "identical", "draft · verify · other"):
        table.add_column(name, justify="right")
    for result in results:
        table.add_row(result.drafter, *_cells(result.all_replies, result.varied_replies))
    return table


def _cells(summary: Summary, varied: Summary | None) -> list[str]:
    low, high = summary.tokens_per_s_spread
    rate = summary.acceptance_rate
    parts = (summary.draft_seconds, summary.verify_seconds, summary.other_seconds)
    return [
        f"{summary.tokens_per_s:.1f}",
        f"{low:.1f}–{high:.1f}",
        f"{summary.speedup:.2f}x",
        f"{summary.distinct_4gram_share:.0%}",
        f"{varied.tokens_per_s:.1f}" if varied else "–",
        f"{varied.speedup:.2f}x" if varied else "–",
        f"{varied.distinct_4gram_share:.0%}" if varied else "–",
        f"{summary.tokens_per_step:.2f}",
        "–" if rate is None else f"{rate:.0%}",
        f"{summary.identical_share:.0%}",
        " · ".join(f"{part / summary.seconds:.0%}" for part in parts),
    ]
