"""Chi-square, p-values and sampling noise, against scipy and against brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from paceline.errors import ConfigError
from paceline.theory.fit import (
    chi_square_p_value,
    expected_total_variation,
    pooled_cells,
    regularised_gamma_q,
    sample_fit,
)


@given(a=st.floats(0.01, 3e4), ratio=st.floats(0, 4) | st.floats(0.97, 1.03))
@settings(deadline=None, max_examples=400)
def test_incomplete_gamma_equals_scipys(a: float, ratio: float) -> None:
    """Absolutely to 1e-12, and relatively to 1e-10 in the upper tail.

    Taking a log x - x - lgamma(a) literally loses four more digits at a = 3e4.
    """
    ours, theirs = regularised_gamma_q(a, a * ratio), float(special.gammaincc(a, a * ratio))
    assert ours == pytest.approx(theirs, rel=0, abs=1e-12)
    if ratio > 1 + 1 / a:
        assert ours == pytest.approx(theirs, rel=1e-10, abs=1e-300)


@pytest.mark.parametrize("freedom", [1, 2, 3, 10, 63, 1000, 49_151])
@pytest.mark.parametrize("quantile", [0.999, 0.5, 1e-3, 1e-6, 1e-12])
def test_p_values_equal_scipys(freedom: int, quantile: float) -> None:
    statistic = float(stats.chi2.isf(quantile, freedom))
    assert chi_square_p_value(statistic, freedom) == pytest.approx(quantile, rel=1e-9)


def test_p_value_edges() -> None:
    assert chi_square_p_value(0.0, 5) == 1.0
    assert chi_square_p_value(math.inf, 5) == 0.0
    assert chi_square_p_value(math.inf, 0) == 0.0
    assert chi_square_p_value(0.0, 0) == 1.0
    assert chi_square_p_value(1e5, 3) == 0.0
    for statistic in (-1.0, math.nan):
        with pytest.raises(ConfigError, match="statistic is"):
            chi_square_p_value(statistic, 3)
    for a, x in ((0.0, 1.0), (math.nan, 1.0), (1.0, -1.0)):
        with pytest.raises(ConfigError, match="a is above 0"):
            regularised_gamma_q(a, x)


def test_sample_fit_equals_scipys_where_nothing_is_pooled() -> None:
    counts, law = np.array([[30, 45, 25]]), np.array([[0.3, 0.5, 0.2]])
    fit = sample_fit(counts, law)
    reference = stats.chisquare(counts[0], 100 * law[0])
    assert fit.chi_square == pytest.approx(float(reference.statistic))
    assert fit.p_value == pytest.approx(float(reference.pvalue))
    assert fit.degrees_of_freedom == 2
    assert fit.total_variation == pytest.approx(0.05)


def test_rows_add_up_and_unvisited_rows_do_not_count() -> None:
    fit = sample_fit(np.array([[30, 70], [0, 0], [60, 40]]), np.array([[0.3, 0.7], [0.5, 0.5], [0.5, 0.5]]))
    assert fit.degrees_of_freedom == 2
    assert fit.chi_square == pytest.approx(4.0)
    assert fit.total_variation == pytest.approx(0.05)


def test_a_sample_of_probability_zero_is_damning() -> None:
    fit = sample_fit(np.array([[999, 1]]), np.array([[1.0, 0.0]]))
    assert fit.chi_square == math.inf
    assert fit.p_value == 0.0


def test_rare_tokens_are_pooled_until_they_can_be_judged() -> None:
    observed, expected = np.array([1, 2, 40, 0, 57]), np.array([2.0, 1.0, 40.0, 0.0, 57.0])
    counts, expectations = pooled_cells(observed, expected)
    assert counts.tolist() == [43.0, 57.0]  # 1 + 2 expect 3, too few: the next smallest joins them
    assert expectations.tolist() == [43.0, 57.0]
    assert pooled_cells(np.array([1, 0]), np.array([0.5, 0.5]))[1].tolist() == [1.0]
    assert pooled_cells(np.array([3, 7]), np.array([5.0, 5.0]))[1].tolist() == [5.0, 5.0]


@given(n=st.integers(1, 60), p=st.floats(0, 1))
@settings(deadline=None)
def test_expected_noise_is_the_binomials_mean_deviation(n: int, p: float) -> None:
    law = np.array([p, 1 - p])
    brute = math.fsum(abs(k / n - p) * math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1))
    assert expected_total_variation(law[None], [n]) == pytest.approx(brute, rel=1e-9, abs=1e-12)


def test_expected_noise_is_what_exact_samples_show() -> None:
    """The mean over 400 multinomial samples; the bound is five of its standard errors (3e-7)."""
    rng = np.random.default_rng(0)
    laws = rng.dirichlet(np.full(40, 0.5), size=2)
    sizes = np.array([300, 900])
    seen = [
        sample_fit(np.stack([rng.multinomial(n, law) for n, law in zip(sizes, laws, strict=True)]), laws)
        for _ in range(400)
    ]
    distances = np.array([fit.total_variation for fit in seen])
    assert abs(distances.mean() - expected_total_variation(laws, sizes)) < 5 * distances.std() / 20
    p_values = np.array([fit.p_value for fit in seen])
    assert (
        abs(p_values.mean() - 0.5) < 5 * (1 / math.sqrt(12)) / 20 + 0.02
    )  # pooled chi-square is not quite exact
