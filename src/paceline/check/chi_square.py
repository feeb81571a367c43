"""Pearson's chi-square test of counts against a known law, with its power; the standard library is enough.

The statistic Σ (observed - expected)² / expected follows the chi-square law with cells - 1 degrees of freedom
when the counts do follow the expected law and no cell expects few. Rare cells are pooled to that end.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Cell = TypeVar("Cell", bound=Hashable)

LEAST_EXPECTED = 25.0
"""Counts a cell must expect. Five is the rule of thumb at 5 %; thresholds below 1e-6 lie far in the tail,
where a cell that expects few is noisier than the chi-square law says."""
CERTAINTY = 0.99
"""Probability with which a detectable deviation is detected."""


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """``p_value`` is 0 when something was observed that the law excludes."""

    statistic: float
    degrees: int
    p_value: float


def chi_square(observed: Mapping[Cell, int], law: Mapping[Cell, float]) -> ChiSquare:
    """Test counts against ``law``, whose probabilities sum to one."""
    cells = _pooled(observed, law, sum(observed.values()))
    statistic = math.fsum((count - expected) ** 2 / expected for count, expected in cells)
    if any(count and law.get(cell, 0.0) <= 0.0 for cell, count in observed.items()):
        statistic = math.inf
    return ChiSquare(statistic, len(cells) - 1, survival(statistic, len(cells) - 1))


def _pooled(observed: Mapping[Cell, int], law: Mapping[Cell, float], total: int) -> list[tuple[float, float]]:
    """Return (observed, expected) of the cells, the rare ones in one with the smallest of the rest."""
    ranked = sorted(law, key=lambda cell: law[cell], reverse=True)
    cells = [(float(observed.get(cell, 0)), total * law[cell]) for cell in ranked if law[cell] > 0.0]
    while len(cells) > 1 and cells[-1][1] < LEAST_EXPECTED:
        (count, expected), (other_count, other_expected) = cells.pop(), cells.pop()
        cells.append((count + other_count, expected + other_expected))
    return cells


def survival(statistic: float, degrees: int) -> float:
    """Return the probability that a chi-square variable of ``degrees`` exceeds ``statistic``.

    For whole degrees the regularised incomplete gamma function Q(degrees / 2, statistic / 2) is a finite sum
    (Abramowitz and Stegun 1964, 26.4.4 and 26.4.5).
    """
    half = statistic / 2.0
    if math.isinf(half):
        return 0.0
    if degrees <= 0 or half <= 0.0:
        return 1.0
    first, total = (0.0, 0.0) if degrees % 2 == 0 else (0.5, math.erfc(math.sqrt(half)))
    orders = (first + k for k in range(degrees // 2))
    return total + math.fsum(math.exp(a * math.log(half) - half - math.lgamma(a + 1.0)) for a in orders)


def threshold_of(p_value: float, degrees: int) -> float:
    """Return the statistic whose survival is ``p_value``, by bisection."""
    low, high = 0.0, 1.0
    while survival(high, degrees) > p_value:
        high *= 2.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if survival(middle, degrees) > p_value else (low, middle)
    return high


def detectable_distance(num_draws: int, degrees: int, p_value: float) -> float:
    """Return the total variation from which on a deviation is found with probability ``CERTAINTY``.

    A law at total variation d has noncentrality N Σ (p - q)² / q >= 4 N d² (Cauchy-Schwarz). The noncentral
    chi-square law is taken for normal, with mean k + λ and variance 2 (k + 2 λ). Pooled cells count as one.
    """
    if degrees <= 0:
        return 1.0
    needed, wanted = threshold_of(p_value, degrees), 2.3263478740408408  # normal quantile of CERTAINTY
    low, high = 0.0, 1e9
    for _ in range(200):
        middle = 0.5 * (low + high)
        reached = degrees + middle - wanted * math.sqrt(2.0 * (degrees + 2.0 * middle)) >= needed
        low, high = (low, middle) if reached else (middle, high)
    return min(1.0, math.sqrt(high / (4.0 * num_draws)))
