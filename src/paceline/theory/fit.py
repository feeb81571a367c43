"""Distances between samples and laws, with the sampling noise to expect; chi-square without scipy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.errors import ConfigError
from paceline.theory.laws import FloatArray, IntArray

# Pearson's statistic follows the chi-square law only where cells are not nearly empty (Cochran's rule).
LEAST_EXPECTED_COUNT = 5.0


@dataclass(frozen=True, slots=True)
class SampleFit:
    """How well samples fit a law.

    ``total_variation``: half the summed absolute difference of shares. ``chi_square`` with
    ``degrees_of_freedom`` (rare tokens pooled to an expected count of 5) and ``p_value``, the probability
    that exact samples fit no better. A sample of probability zero makes ``chi_square`` infinite and
    ``p_value`` 0.
    """

    total_variation: float
    chi_square: float
    degrees_of_freedom: int
    p_value: float


def sample_fit(counts: IntArray, laws: FloatArray) -> SampleFit:
    """Compare ``counts`` int64 [R, V] with ``laws`` float64 [R, V], row by row."""
    totals = counts.sum(axis=1, keepdims=True)
    distance = float(np.abs(counts - totals * laws).sum() / (2 * counts.sum()))
    statistic, freedom = 0.0, 0
    for row, law, total in zip(counts, laws, totals[:, 0], strict=True):
        observed, expected = pooled_cells(row, law * total)
        if (row[law == 0] > 0).any():
            statistic = math.inf
        statistic += float(((observed - expected) ** 2 / expected).sum())
        freedom += max(0, len(expected) - 1)
    return SampleFit(distance, statistic, freedom, chi_square_p_value(statistic, freedom))


def pooled_cells(observed: IntArray, expected: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return observed and expected counts with the rarest cells pooled until each expects at least 5."""
    possible = np.flatnonzero(expected)
    order = possible[np.argsort(expected[possible], kind="stable")]
    counts, expectations = observed[order].astype(np.float64), expected[order]
    pooled = int(np.searchsorted(expectations, LEAST_EXPECTED_COUNT))  # cells too small to stand alone
    while 0 < pooled < len(order) and expectations[:pooled].sum() < LEAST_EXPECTED_COUNT:
        pooled += 1
    if pooled > 1:
        counts = np.concatenate(([counts[:pooled].sum()], counts[pooled:]))
        expectations = np.concatenate(([expectations[:pooled].sum()], expectations[pooled:]))
    return counts, expectations


def expected_total_variation(laws: FloatArray, samples: npt.ArrayLike) -> float:
    """Return the mean total variation of exact samples: ``samples`` [R] from the rows of ``laws`` [R, V].

    De Moivre's closed form of a binomial's mean absolute deviation, summed over tokens; no approximation.
    """
    sizes = np.asarray(samples, dtype=np.int64)
    total = int(sizes.sum())
    deviation = sum(
        _mean_absolute_deviation(int(size), float(probability))
        for law, size in zip(laws, sizes, strict=True)
        for probability in law[law > 0]
    )
    return deviation / (2 * total)


def chi_square_p_value(statistic: float, degrees_of_freedom: int) -> float:
    """Return P(chi-square >= ``statistic``); 1 when no cell was free to differ."""
    if math.isnan(statistic) or statistic < 0:
        raise ConfigError(f"statistic is {statistic}; a chi-square statistic is at least 0")
    if math.isinf(statistic):
        return 0.0
    if degrees_of_freedom <= 0:
        return 1.0
    return regularised_gamma_q(degrees_of_freedom / 2, statistic / 2)


def regularised_gamma_q(a: float, x: float) -> float:
    """Return the regularised upper incomplete gamma function Q(a, x) for a > 0, x >= 0.

    Series for the lower part below x = a + 1, continued fraction (modified Lentz) for the upper part above;
    Abramowitz and Stegun 6.5.29 and 6.5.31. Tested against scipy for a up to 3e4.
    """
    if not a > 0 or not x >= 0:
        raise ConfigError(f"Q(a, x) with a = {a}, x = {x}; a is above 0 and x at least 0")
    if x == 0:
        return 1.0
    factor = math.exp(_log_factor(a, x))
    if x < a + 1:
        return 1.0 - factor * _lower_series(a, x)
    return factor * _upper_fraction(a, x)


def _log_factor(a: float, x: float) -> float:
    """Return log(x^a e^-x / Gamma(a)).

    For large a the three terms are huge and cancel, so they are combined by Stirling's series first (four
    correction terms: below 1e-14 from a = 20 on).
    """
    if a < 20:
        return a * math.log(x) - x - math.lgamma(a)
    correction = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * a * a)) / (a * a)) / (a * a)) / a
    shift = (x - a) / a
    if shift <= -1.0:  # x is nothing beside a
        return -math.inf
    return 0.5 * math.log(a / (2 * math.pi)) - a * (shift - math.log1p(shift)) - correction


def _lower_series(a: float, x: float) -> float:
    term = total = 1.0 / a
    n = a
    while term > total * 1e-17:
        n += 1.0
        term *= x / n
        total += term
    return total


def _upper_fraction(a: float, x: float) -> float:
    b = x + 1.0 - a
    c, d = math.inf, 1.0 / b
    fraction, i = d, 0
    change = 0.0
    while abs(change - 1.0) > 1e-15:
        i += 1
        numerator = -i * (i - a)
        b += 2.0
        d = _away_from_zero(numerator * d + b)
        c = _away_from_zero(b + numerator / c)
        d = 1.0 / d
        change = d * c
        fraction *= change
    return fraction


def _away_from_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300


def _mean_absolute_deviation(n: int, p: float) -> float:
    """Return E|X - np|, X binomial(n, p): 2 (m+1) C(n, m+1) p^(m+1) (1-p)^(n-m) with m = floor(np)."""
    if n == 0 or p >= 1.0:
        return 0.0
    m = math.floor(n * p)
    if m >= n:  # n * p rounded up to n
        return 0.0
    log_choose = math.lgamma(n + 1) - math.lgamma(m + 2) - math.lgamma(n - m)
    return 2 * (m + 1) * math.exp(log_choose + (m + 1) * math.log(p) + (n - m) * math.log1p(-p))
