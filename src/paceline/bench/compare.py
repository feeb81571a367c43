"""Two runs of the bench: what changed beyond noise.

Both runs asked the same prompts, so each prompt is compared with itself: prompts are drawn once for both,
repeats for each run by itself (see :mod:`paceline.bench.bootstrap`), and the spread of the logarithm of
``after ÷ before`` over 2,000 draws is the standard error of the change (times √(R/(R-1)) for R repeats: a
bootstrap of few is too narrow by that much). A change counts when its interval leaves zero out. Of many
figures some would leave it out by chance; the intervals are therefore as wide as it
takes for the chance of *any* false alarm to be 5 % over all figures of a comparison (Bonferroni).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.bench.bootstrap import draw_units, drawn_medians, quotients
from paceline.bench.runfile import RunFile
from paceline.bench.samples import Numbers, Samples

FALSE_ALARMS = 0.05
"""Chance that a comparison of two runs of one and the same program reports anything."""

Case = tuple[str, str, int, float]
"""Workload, drafter, batch, temperature."""


@dataclass(frozen=True, slots=True)
class Figure:
    """``quotient``: this drafter's samples, those of ``none`` → above and below [units, repeats], whose
    quotient of sums the figure is. ``higher_is_better``."""

    name: str
    quotient: Callable[[Samples, Samples], tuple[Numbers, Numbers]]
    higher_is_better: bool = True
    of_plain: bool = True
    """Whether plain decoding has the figure (it has no speed-up and accepts nothing)."""


FIGURES = (
    Figure("speedup", lambda mine, plain: (plain.seconds, mine.seconds), of_plain=False),
    Figure("tokens_per_s", lambda mine, _: (mine.tokens, mine.seconds)),
    Figure("tokens_per_step", lambda mine, _: (mine.tokens, mine.steps), of_plain=False),
    Figure("acceptance_rate", lambda mine, _: (mine.accepted, mine.drafted), of_plain=False),
    Figure("ttft_s", lambda mine, _: (mine.ttft_s, mine.replies), higher_is_better=False),
)
IDENTICAL = "identical_share"
FIGURE_NAMES = (*(figure.name for figure in FIGURES), IDENTICAL)


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of one case. ``low``, ``high``: interval of after ÷ before. ``verdict``: ``better``,
    ``worse``, ``same`` (within noise) or ``unclear`` (one prompt and repeat: nothing to tell noise by)."""

    case: Case
    figure: str
    before: float
    after: float
    low: float
    high: float
    verdict: str


def compare_runs(
    before: RunFile, after: RunFile, figures: Sequence[str] = FIGURE_NAMES, tolerance: float = 0.0
) -> list[Change]:
    """Return each figure that both runs have, in the order of ``before``.

    ``figures``: which ones, of ``FIGURE_NAMES``. ``tolerance``: relative changes up to this one (0.02: two
    per cent) are ``same`` however clear they are.
    """
    measured = [
        (case, figure, theirs, ours)
        for case in before.runs
        if case in after.runs
        for figure in FIGURES
        if figure.name in figures and (figure.of_plain or case[1] != "none")
        for theirs, ours in [(_sides(before, case, figure), _sides(after, case, figure))]
        if _is_measured(theirs) and _is_measured(ours)
    ]
    width = statistics.NormalDist().inv_cdf(1.0 - FALSE_ALARMS / (2 * max(1, len(measured))))
    changes = [_change(*entry, width, tolerance) for entry in measured]
    if IDENTICAL in figures:
        changes += _identical_changes(before.runs, after.runs)
    return changes


def _sides(run: RunFile, case: Case, figure: Figure) -> tuple[Numbers, Numbers]:
    workload, _, batch, temperature = case
    above, below = figure.quotient(
        run.samples[case], run.samples.get((workload, "none", batch, temperature), run.samples[case])
    )
    return above, below


def _is_measured(sides: tuple[Numbers, Numbers]) -> bool:
    """Return whether the figure exists: something was drafted, timed, accepted."""
    return bool(sides[0].sum() > 0 and sides[1].sum() > 0)


def _change(
    case: Case,
    figure: Figure,
    before: tuple[Numbers, Numbers],
    after: tuple[Numbers, Numbers],
    width: float,
    tolerance: float,
) -> Change:
    was, is_now = _value(*before), _value(*after)
    log_ratio = math.log(is_now / was)
    error = _standard_error(before, after)
    if error is None:
        return Change(case, figure.name, was, is_now, 0.0, math.inf, "unclear")
    low, high = log_ratio - width * error, log_ratio + width * error
    verdict = "same"
    if not low <= 0.0 <= high and abs(is_now / was - 1.0) > max(tolerance, 1e-9):
        verdict = "better" if (log_ratio > 0) == figure.higher_is_better else "worse"
    return Change(case, figure.name, was, is_now, math.exp(low), math.exp(high), verdict)


def _value(above: Numbers, below: Numbers) -> float:
    """Return the median over repeats of the quotient, leaving out repeats that have none."""
    over, under = above.sum(axis=0), below.sum(axis=0)
    return float(np.median(over[under > 0] / under[under > 0])) or math.ulp(1.0)


def _standard_error(before: tuple[Numbers, Numbers], after: tuple[Numbers, Numbers]) -> float | None:
    """Return that of log(after ÷ before); ``None`` when both runs have one unit and repeat."""
    num_units = before[0].shape[0]
    if num_units == 1 and before[0].shape[1] == after[0].shape[1] == 1:
        return None
    weights = draw_units(num_units)
    # Seeds of their own: repeats of two runs have nothing in common.
    drawn = [drawn_medians(quotients(*side, weights), seed) for side, seed in ((before, 1), (after, 2))]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(drawn[1] / drawn[0])
    finite = logs[np.isfinite(logs)]
    if len(finite) < 2:
        return None
    repeats = min(before[0].shape[1], after[0].shape[1])
    return float(np.std(finite)) * math.sqrt(repeats / max(1, repeats - 1))


def _identical_changes(
    before: Mapping[Case, Mapping[str, Any]], after: Mapping[Case, Mapping[str, Any]]
) -> Iterator[Change]:
    """Yield the identical shares: they are counts of facts, and any fall is a regression."""
    for case, run in before.items():
        was, is_now = run.get(IDENTICAL), after.get(case, {}).get(IDENTICAL)
        if case[1] == "none" or was is None or is_now is None:
            continue
        verdict = "same" if was == is_now else "better" if is_now > was else "worse"
        ratio = is_now / was if was else math.inf
        yield Change(case, IDENTICAL, was, is_now, ratio, ratio, verdict)
