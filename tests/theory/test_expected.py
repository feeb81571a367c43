"""Expected tokens, cost and break-even: closed forms against sums, edges, refusals."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import ConfigError
from paceline.theory import (
    CostCurve,
    break_even_alpha,
    expected_tokens,
    expected_tokens_at,
    expected_tokens_tree,
    optimal_draft_length,
    speedup,
    wall_time_per_token,
)

# Our kernels' prototype and a CPU engine that pays for every row (design.md §1).
CHEAP = CostCurve.from_mapping({"1": 1.0, "2": 1.02, "4": 1.1, "8": 1.45})
DEAR = CostCurve.from_mapping({1: 1.0, 2: 1.53, 4: 2.31, 8: 3.97})
alphas = st.floats(0, 1)
lengths = st.integers(0, 12)


def test_three_point_oh_five() -> None:
    """The figure of 3.20 that circulates for alpha = 0.75, K = 4 is wrong."""
    assert expected_tokens(0.75, 4) == pytest.approx(3.05078125, abs=1e-14)


@given(alpha=alphas, length=lengths)
@settings(deadline=None)
def test_the_closed_form_is_the_sum(alpha: float, length: int) -> None:
    total = math.fsum(alpha**i for i in range(length + 1))
    assert expected_tokens(alpha, length) == pytest.approx(total, rel=1e-13)
    assert expected_tokens_at([alpha] * length) == pytest.approx(total, rel=1e-12)
    assert expected_tokens_tree([alpha**i for i in range(1, length + 1)]) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize(
    ("alpha", "length", "tokens"),
    [(0, 7, 1), (1, 7, 8), (0.3, 0, 1), (1, 0, 1), (0, 0, 1), (5e-324, 3, 1), (0.5, 10**9, 2)],
)
def test_edges(alpha: float, length: int, tokens: float) -> None:
    assert expected_tokens(alpha, length) == tokens


def test_no_digits_are_lost_near_one() -> None:
    """(1 - alpha^(K+1)) / (1 - alpha) as written is 4 % off here."""
    assert expected_tokens(1 - 1e-15, 9) == pytest.approx(10, rel=1e-13)


def test_trees() -> None:
    """Two children of the root kept with .5 and .2, one grandchild with .3: 1 + .5 + .2 + .3."""
    assert expected_tokens_tree([0.5, 0.2, 0.3], [-1, -1, 0]) == pytest.approx(2.0)
    assert expected_tokens_tree([]) == 1.0
    with pytest.raises(
        ConfigError, match=r"the children of node 0 are accepted with probability 0.6, the node"
    ):
        expected_tokens_tree([0.5, 0.2, 0.6], [-1, -1, 0])
    with pytest.raises(ConfigError, match=r"the children of the root are accepted with probability 1.1"):
        expected_tokens_tree([0.5, 0.6], [-1, -1])
    with pytest.raises(ConfigError, match="2 path_probabilities but 1 parents"):
        expected_tokens_tree([0.5, 0.2], [-1])
    with pytest.raises(ConfigError, match=r"parents\[0\] is 0"):
        expected_tokens_tree([0.5], [0])


def test_wall_time() -> None:
    assert wall_time_per_token(0.75, 4, 0.1) == pytest.approx(1.4 / 3.05078125)
    assert wall_time_per_token(0.75, 3, 0.05, CHEAP) == pytest.approx((0.15 + 1.1) / 2.734375)
    assert (
        wall_time_per_token(0.3, 0, 5.0, DEAR) == 1.0
    )  # nothing drafted: plain decoding, whatever a draft costs
    assert speedup(0.75, 4, 0.1) == pytest.approx(3.05078125 / 1.4)


def test_the_curve_is_linear_between_measured_rows_and_ends_at_the_last() -> None:
    assert CHEAP(3) == pytest.approx(1.06)
    assert CHEAP(5) == pytest.approx(1.1 + 0.35 / 4)
    assert CHEAP(8) == 1.45
    assert CostCurve.flat()(1000) == 1.0
    with pytest.raises(
        ConfigError, match="rows is 9, but r was measured up to 8; measure more or draft less"
    ):
        CHEAP(9)
    with pytest.raises(ConfigError, match="rows is 0"):
        CHEAP(0)


@given(alpha=alphas, c=st.floats(0, 2), curve=st.sampled_from([CHEAP, DEAR, CostCurve.flat()]))
@settings(deadline=None)
def test_the_optimal_length_is_the_best_of_all(alpha: float, c: float, curve: CostCurve) -> None:
    longest = 12 if curve.is_flat else 7
    best = optimal_draft_length(alpha, c, curve, longest=12)
    times = [wall_time_per_token(alpha, length, c, curve) for length in range(longest + 1)]
    assert best <= longest
    assert times[best] == min(times)
    assert times[best] <= 1.0  # never slower than plain: zero is a legal choice


def test_optimal_length_edges() -> None:
    assert optimal_draft_length(0.0, 0.0) == 0
    assert optimal_draft_length(1.0, 0.0, longest=9) == 9
    assert optimal_draft_length(0.5, 1.0) == 0
    assert optimal_draft_length(0.4, 0.02, DEAR) == 0
    assert optimal_draft_length(0.4, 0.02, CHEAP) > 0
    assert optimal_draft_length(0.9, 0.1, longest=0) == 0


@given(length=st.integers(1, 7), c=st.floats(0, 1.2), curve=st.sampled_from([CHEAP, DEAR, CostCurve.flat()]))
@settings(deadline=None)
def test_break_even_is_where_speculation_starts_to_pay(length: int, c: float, curve: CostCurve) -> None:
    alpha = break_even_alpha(length, c, curve)
    if alpha is None:
        assert wall_time_per_token(1.0, length, c, curve) > 1.0
        return
    assert wall_time_per_token(alpha, length, c, curve) <= 1.0
    if alpha > 0:
        assert wall_time_per_token(max(0.0, alpha * (1 - 1e-6) - 1e-12), length, c, curve) > 1.0 - 1e-15


def test_break_even_edges() -> None:
    assert break_even_alpha(0, 3.0) == 0.0
    assert break_even_alpha(4, 0.0) == 0.0
    assert break_even_alpha(1, 1.0) == pytest.approx(1.0)
    assert break_even_alpha(2, 1.5) is None
    assert break_even_alpha(1, 0.5) == pytest.approx(0.5)


@pytest.mark.parametrize("alpha", [-0.01, 1.01, math.nan, math.inf, "0.5", True, None])
def test_alpha_outside_the_unit_interval(alpha: float) -> None:
    for call in (
        lambda: expected_tokens(alpha, 4),
        lambda: wall_time_per_token(alpha, 4, 0.1),
        lambda: optimal_draft_length(alpha, 0.1),
    ):
        with pytest.raises(ConfigError, match=r"alpha is .*; give a probability between 0 and 1"):
            call()
    with pytest.raises(ConfigError, match=r"conditional_acceptance\[1\] is"):
        expected_tokens_at([0.5, alpha])
    with pytest.raises(ConfigError, match=r"path_probabilities\[0\] is"):
        expected_tokens_tree([alpha])


@pytest.mark.parametrize("length", [-1, 2.0, math.nan, True, "4"])
def test_lengths_that_are_no_counts(length: int) -> None:
    for call in (
        lambda: expected_tokens(0.5, length),
        lambda: wall_time_per_token(0.5, length, 0.1),
        lambda: break_even_alpha(length, 0.1),
    ):
        with pytest.raises(ConfigError, match=r"K is .*; give a whole number of at least 0"):
            call()
    with pytest.raises(ConfigError, match="longest is"):
        optimal_draft_length(0.5, 0.1, longest=length)


@pytest.mark.parametrize("cost", [-0.1, math.nan, math.inf])
def test_costs_that_are_none(cost: float) -> None:
    with pytest.raises(ConfigError, match=r"c is .*; give a finite cost"):
        wall_time_per_token(0.5, 2, cost)
    with pytest.raises(ConfigError, match=r"r\(2\) is .*; give a finite cost"):
        CostCurve((1, 2), (1.0, cost))


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({}, "0 row counts and 0 costs"),
        ({"2": 1.0}, r"r covers rows \[2\]; give ascending counts that start at 1"),
        ({"1": 10.3, "2": 15.8}, r"r\(1\) is 10.3; divide all times by the time of one row"),
        ({"one": 1.0}, "r is no table of numbers"),
        ({"1": None}, "r is no table of numbers"),
        ({"1": 1.0, "2": 0.0}, r"r\(2\) is 0"),
        ({"0": 1.0, "1": 1.0}, "r: rows is 0"),
    ],
)
def test_curves_that_are_none(costs: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CostCurve.from_mapping(costs)
