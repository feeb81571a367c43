"""The node count with the most expected tokens per second."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.drafters.verify_cost import VerifyCost
from paceline.errors import ConfigError


@given(
    paths=st.lists(st.floats(0, 1), max_size=12).map(lambda paths: sorted(paths, reverse=True)),
    steps=st.lists(st.floats(0, 0.6), min_size=1, max_size=9),
    limit=st.integers(0, 12),
)
def test_the_best_count_is_the_best_of_all(paths: list[float], steps: list[float], limit: int) -> None:
    ratios = [1.0]
    for step in steps:
        ratios.append(ratios[-1] + step)
    cost = VerifyCost(tuple(ratios), min_gain=0.0)
    speeds = [(1 + sum(paths[:n])) / cost.at(n + 1) for n in range(min(limit, len(paths)) + 1)]
    assert speeds[cost.best_count(paths, limit)] == pytest.approx(max(speeds))


def test_zero_is_a_legal_choice() -> None:
    dear = VerifyCost((1.0, 2.0, 3.0))
    assert dear.best_count([0.9, 0.8], 2) == 0
    free = VerifyCost((1.0, 1.0, 1.0))
    assert free.best_count([0.9, 0.8], 2) == 2
    assert free.best_count([], 2) == 0


def test_a_gain_below_the_noise_is_left_alone() -> None:
    assert VerifyCost((1.0, 1.0), min_gain=0.02).best_count([0.01], 1) == 0
    assert VerifyCost((1.0, 1.0), min_gain=0.0).best_count([0.01], 1) == 1


def test_the_curve_goes_on_with_its_mean_slope() -> None:
    cost = VerifyCost((2.0, 3.0, 4.0))
    assert [cost.at(rows) for rows in (1, 2, 3, 4, 7)] == [1.0, 1.5, 2.0, 2.5, 4.0]
    assert VerifyCost((1.0,)).at(3) == 3.0  # nothing measured: rows as dear as forwards


@pytest.mark.parametrize("ratios", [(), (1.0, 0.0), (1.0, float("nan")), (1.0, float("inf"))])
def test_a_curve_that_cannot_be_one_is_refused(ratios: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="verify_cost"):
        VerifyCost(ratios)
    with pytest.raises(ConfigError, match="min_gain=1"):
        VerifyCost((1.0,), min_gain=1)
