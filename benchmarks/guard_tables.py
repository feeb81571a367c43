"""The tables of ``never_slower.py``, as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fixed_settings import FixedResult
from guard_cases import WRONG
from guard_runs import CaseResult

BAR = 1.03
LATE_BAR = 0.97
FIXED_BAR = 0.97


def spread(values: Sequence[float]) -> str:
    """Return the median and what lies around it."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def case_holds(result: CaseResult) -> bool:
    """Whether a case keeps all of its bars."""
    held = result.ratio <= BAR and result.identical in (None, 1.0)
    if result.label.startswith(WRONG):
        held = held and statistics.median(result.late) >= LATE_BAR and result.warnings == 1
    return held


def guard_table(results: Sequence[CaseResult]) -> str:
    """Return time ÷ plain for every case, with what else is asked of it."""
    lines = [
        "| served | batch | time ÷ plain: median (range) | rounds | tokens per step | drafted, accepted | "
        f"identical | ≤ {BAR} |",
        "|:--|--:|--:|--:|--:|--:|--:|:--|",
    ]
    for result in results:
        same = "–" if result.identical is None else f"{100 * result.identical:.0f}%"
        lines.append(
            f"| {result.label} | {result.batch} | {spread(result.ratios)} | {len(result.ratios)} | "
            f"{result.tokens_per_step:.2f} | {result.num_draft_tokens}, {result.num_accepted_tokens} | "
            f"{same} | {'yes' if case_holds(result) else '**no**'} |"
        )
    wrong = [result for result in results if result.label.startswith(WRONG)]
    if wrong:
        lines += [
            "",
            "| always wrong, batch | speed after 64 tokens ÷ plain (bar 0.97) | warnings |",
            "|--:|--:|--:|",
        ]
        lines += [f"| {r.batch} | {spread(r.late)} | {r.warnings} |" for r in wrong]
    return "\n".join(lines)


def fixed_table(results: Sequence[FixedResult]) -> str:
    """Return the best fixed settings of each workload beside ``auto``."""
    lines = [
        "| workload | best fixed | its speed-up | `auto` | `auto` ÷ best fixed | best of other drafters "
        f"| identical | ≥ {FIXED_BAR} |",
        "|:--|:--|--:|--:|--:|:--|--:|:--|",
    ]
    for result in results:
        best, share = result.best_fixed, statistics.median(result.shares)
        beats_plain = statistics.median(result.duel[best]) > 1.0
        others = [
            f"{name}: {statistics.median(values):.2f}"
            for name, values in result.speedups.items()
            if name not in (best, "auto")
        ]
        held = "yes" if share >= FIXED_BAR else "**no**"
        lines.append(
            f"| {result.workload} | {best} | {spread(result.duel[best])} | "
            f"{spread(result.duel['auto'])} | {spread(result.shares)} | {'; '.join(others)} | "
            f"{100 * result.identical:.0f}% | {held if beats_plain else 'plain is best'} |"
        )
    return "\n".join(lines)
