"""Estimates start from a drafter's confidence and follow what each depth has shown."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.control.estimates import DepthEstimates
from paceline.tree import ROOT


def test_without_trials_the_confidence_stands() -> None:
    estimates = DepthEstimates()
    assert estimates.paths([ROOT, 0, ROOT], [0.6, 0.3, 0.2]) == [0.6, 0.3, 0.2]


def test_each_depth_is_judged_by_itself() -> None:
    """A drafter that is as right as it says at depth 1 and half as right at depth 2."""
    rng, estimates = random.Random(1), DepthEstimates()
    for _ in range(4000):
        estimates.learn(1, 0.7, rng.random() < 0.7)
        estimates.learn(2, 0.7, rng.random() < 0.35)
    # A window of fourteen trials leaves noise: means over the run would be 1 and 0.5.
    assert estimates.factor_at(1) > 1.3 * estimates.factor_at(2)
    first, second = estimates.paths([ROOT, 0], [0.7, 0.49])
    assert second < 0.49 * first / 0.7


@given(st.lists(st.tuples(st.integers(1, 30), st.floats(0, 1), st.booleans()), max_size=60))
def test_no_node_is_likelier_than_its_parent(trials: list[tuple[int, float, bool]]) -> None:
    estimates = DepthEstimates()
    for depth, promised, accepted in trials:
        estimates.learn(depth, promised, accepted)
    parents = [ROOT, 0, 1, 0, ROOT]
    paths = estimates.paths(parents, [0.8, 0.8, 0.4, 0.1, 0.1])
    for path, parent in zip(paths, parents, strict=True):
        assert 0.0 <= path <= (1.0 if parent == ROOT else paths[parent])


def test_a_tree_is_judged_down_to_the_last_known_token() -> None:
    """Nothing is known of what follows the last committed token: the third level is no trial."""
    tokens, parents, paths = [5, 6, 7, 9], [ROOT, 0, 1, ROOT], [0.5, 0.25, 0.2, 0.2]
    estimates = DepthEstimates()
    assert estimates.learn_tree(tokens, parents, paths, (5, 6)) == 2
    assert estimates.factor_at(1) > 1.0
    assert estimates.factor_at(3) == pytest.approx(estimates.factor)
    refused = DepthEstimates()
    assert refused.learn_tree(tokens, parents, paths, (9, 1, 1)) == 1  # 9 has no children: no further trial
    assert refused.learn_tree(tokens, parents, paths, (4,)) == 0
    assert refused.factor < estimates.factor


def test_old_trials_fade() -> None:
    estimates = DepthEstimates()
    for _ in range(100):
        estimates.learn(1, 0.8, False)
    assert estimates.factor_at(1) == pytest.approx(0.25, abs=0.02)
    for _ in range(60):
        estimates.learn(1, 0.8, True)
    assert estimates.factor_at(1) > 1.1
