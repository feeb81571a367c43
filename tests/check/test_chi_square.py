"""The test itself: its law against scipy's, how often it cries wolf, what it notices."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from paceline.check.chi_square import chi_square, detectable_distance, survival, threshold_of

LAW = {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.0995, "rare": 0.0004, "rarer": 0.0001}


@pytest.mark.parametrize("degrees", [1, 2, 3, 8, 21, 63])
@pytest.mark.parametrize("statistic", [0.1, 1.0, 7.5, 40.0, 200.0])
def test_survival_is_scipys(degrees: int, statistic: float) -> None:
    assert survival(statistic, degrees) == pytest.approx(stats.chi2.sf(statistic, degrees), rel=1e-10)


def test_survival_at_the_edges() -> None:
    assert survival(0.0, 5) == 1.0
    assert survival(12.0, 0) == 1.0
    assert survival(math.inf, 5) == 0.0


def test_threshold_inverts_survival() -> None:
    assert threshold_of(1e-8, 17) == pytest.approx(stats.chi2.isf(1e-8, 17), rel=1e-9)


def counts_of(law: dict[str, float], total: int, rng: np.random.Generator) -> Counter[str]:
    return Counter(dict(zip(law, rng.multinomial(total, list(law.values())).tolist(), strict=True)))


def test_a_right_law_is_seldom_accused() -> None:
    """At 1 % no more than 1 % of 4,000 right samples, up to chance (at most 80, false alarm below 1e-6)."""
    rng = np.random.default_rng(5)
    accused = sum(chi_square(counts_of(LAW, 2000, rng), LAW).p_value < 0.01 for _ in range(4000))
    assert accused <= 80


def test_rare_cells_are_pooled() -> None:
    """2,000 draws expect 0.8 and 0.2 of the two rare ones: they join d."""
    assert chi_square(Counter(a=800, b=600, c=400, d=200), LAW).degrees == 3


def test_what_the_law_excludes_is_never_drawn() -> None:
    counts = Counter(a=801, b=600, c=400, d=198, e=1)
    assert chi_square(counts, LAW).p_value == 0.0
    assert chi_square(Counter(a=5, b=1), {"a": 1.0, "b": 0.0}).p_value == 0.0


def test_one_certain_reply_says_nothing() -> None:
    result = chi_square(Counter(a=1000), {"a": 1.0})
    assert (result.degrees, result.p_value) == (0, 1.0)


def test_the_stated_distance_is_detected() -> None:
    """A law that far off is missed in at most 1 % of samples; 12 misses in 300 come by chance 1e-4 times."""
    total, threshold = 4000, 1e-7
    law = dict.fromkeys("abcd", 0.25)
    away = detectable_distance(total, 3, threshold)
    moved = {"a": 0.25 + away, "b": 0.25 - away, "c": 0.25, "d": 0.25}
    rng = np.random.default_rng(9)
    missed = sum(chi_square(counts_of(moved, total, rng), law).p_value >= threshold for _ in range(300))
    assert missed <= 12
    assert detectable_distance(4 * total, 3, threshold) == pytest.approx(away / 2, rel=1e-6)
