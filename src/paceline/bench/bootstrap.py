"""Confidence intervals of a quotient of sums, by resampling prompts and repeats.

Prompts differ from each other, and a repeat is fast or slow as a whole; both are chance. The pigeonhole
bootstrap (Owen 2007, "The pigeonhole bootstrap") draws rows (prompts) and columns (repeats) with replacement,
independently of each other, and gives each cell the product of their counts; it never understates the
variance of such a two-way mean. Intervals are percentiles of 2,000 such draws from a fixed seed: the same
figures give the same interval. With few prompts and repeats (below about five) any bootstrap is too narrow.
"""

from __future__ import annotations

import numpy as np

from paceline.bench.samples import Numbers, Samples

NUM_DRAWS = 2000
LEVEL = 0.95
_SEED = 20260
"""Any fixed number will do."""

Interval = tuple[float, float]


def draw_units(num_units: int, num_draws: int = NUM_DRAWS, seed: int = _SEED) -> Numbers:
    """Return float64 [num_draws, num_units]: how often each unit is drawn."""
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(num_units, np.full(num_units, 1.0 / num_units), size=num_draws)
    return counts.astype(np.float64)


def quotients(above: Numbers, below: Numbers, units: Numbers) -> Numbers:
    """Return [draws, repeats]: Σ ``above`` ÷ Σ ``below`` over the drawn units, nan where nothing is below.

    ``above``, ``below``: [units, repeats]. ``units``: [draws, units], see :func:`draw_units`.
    """
    over, under = units @ above, units @ below
    return np.divide(over, under, out=np.full_like(over, np.nan), where=under > 0)


def drawn_medians(by_repeat: Numbers, seed: int = _SEED) -> Numbers:
    """Return for each draw the median over as many repeats, drawn with replacement: [draws]."""
    num_draws, num_repeats = by_repeat.shape
    drawn = np.random.default_rng(seed + 1).integers(num_repeats, size=(num_draws, num_repeats))
    return np.asarray(np.median(np.take_along_axis(by_repeat, drawn, axis=1), axis=1))


def speedup_interval(mine: Samples, plain: Samples, *, per_token: bool) -> Interval | None:
    """Return the interval of the speed-up at ``LEVEL``; ``None`` with a single unit and repeat.

    ``per_token``: compare tokens ÷ seconds, for replies that are not those of plain decoding.
    """
    if mine.shape == (1, 1):
        return None
    weights = draw_units(mine.shape[0])
    by_repeat = quotients(plain.seconds, mine.seconds, weights)
    if per_token:
        by_repeat = by_repeat * quotients(mine.tokens, plain.tokens, weights)
    return _percentiles(drawn_medians(by_repeat))


def speed_interval(samples: Samples) -> Interval | None:
    """Return the interval of tokens per second at ``LEVEL``; ``None`` with a single unit and repeat."""
    if samples.shape == (1, 1):
        return None
    by_repeat = quotients(samples.tokens, samples.seconds, draw_units(samples.shape[0]))
    return _percentiles(drawn_medians(by_repeat))


def _percentiles(values: Numbers) -> Interval | None:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    low, high = np.percentile(finite, (50 * (1 - LEVEL), 50 * (1 + LEVEL)))
    return float(low), float(high)
