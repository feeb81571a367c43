"""The tree rules as pure functions of explicit uniforms, and on larger vocabularies by their samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import ConfigError
from paceline.theory import (
    StepOutcome,
    certain_step,
    certain_tree_step,
    make_target,
    sampled_tree_step,
    speculative_step,
)
from paceline.theory.chance import RandomChance
from paceline.theory.fit import sample_fit
from paceline.theory.laws import FloatArray, law_function
from paceline.theory.processes import Process, certain_process, sampled_tree_process
from paceline.theory.trees import draw_without_replacement
from support.theory_laws import laws

P = np.array([0.5, 0.3, 0.2])


def test_rejected_children_give_up_their_mass() -> None:
    """Children 0 and 1 of the root: kept with .5, then with .3 / .5; what is left is token 2."""
    rows = np.stack([P, [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    tree = ([0, 1], [-1, -1])
    assert certain_tree_step(rows, *tree, [0.49, 0.9, 0.9]) == StepOutcome((0,), 1, bonus=True)
    assert certain_tree_step(rows, *tree, [0.51, 0.59, 0.9]) == StepOutcome((1,), 0, bonus=True)
    assert certain_tree_step(rows, *tree, [0.51, 0.61, 0.0]) == StepOutcome((), 2, bonus=False)


def test_the_walk_goes_down_and_stops_where_children_are_rejected() -> None:
    rows = np.stack([P] * 4)
    tokens, parents = [1, 0, 2], [-1, -1, 1]
    assert certain_tree_step(rows, tokens, parents, [0.9, 0.1, 0.1, 0.9]) == StepOutcome(
        (0, 2), 2, bonus=True
    )
    assert certain_tree_step(rows, tokens, parents, [0.9, 0.1, 0.9, 0.9]) == StepOutcome((0,), 1, bonus=False)


@given(law=laws(4), token=st.integers(0, 3), uniforms=st.tuples(*[st.floats(0, 0.999)] * 2))
@settings(deadline=None)
def test_a_certain_chain_is_rejection_with_a_point_mass(
    law: FloatArray, token: int, uniforms: tuple[float, float]
) -> None:
    certain = certain_step([law] * 2, [token], uniforms)
    assert certain == speculative_step([law] * 2, [np.eye(4)[token]], [token], uniforms)


@given(p=laws(4), q=laws(4), uniforms=st.tuples(*[st.floats(0, 0.999)] * 2))
@settings(deadline=None)
def test_one_child_without_replacement_is_plain_rejection(
    p: FloatArray, q: FloatArray, uniforms: tuple[float, float]
) -> None:
    token = int(q.argmax())
    outcome = sampled_tree_step([p] * 2, [q] * 2, [token], [-1], uniforms)
    assert outcome == speculative_step([p] * 2, [q], [token], uniforms)


def test_all_tokens_as_children_always_accept() -> None:
    rows = np.stack([P] * 4)
    for uniforms in np.random.default_rng(0).random((50, 4)):
        for outcome in (
            certain_tree_step(rows, [2, 0, 1], [-1] * 3, uniforms),
            sampled_tree_step(rows, np.full((4, 3), 1 / 3), [2, 0, 1], [-1] * 3, uniforms),
        ):
            assert outcome.bonus
            assert len(outcome.accepted) == 1


def test_without_replacement_draws_distinct_tokens_of_the_support() -> None:
    chance = RandomChance(np.random.default_rng(1))
    law = np.array([0.5, 0.0, 0.3, 0.2])
    for _ in range(50):
        assert sorted(draw_without_replacement(law, 9, chance)) == [0, 2, 3]
    assert draw_without_replacement(law, 0, chance) == ()


@pytest.mark.parametrize("kind", ["certain", "sampled"])
def test_first_tokens_on_a_larger_vocabulary(kind: str) -> None:
    """Chi-square of 20,000 independent first tokens over 64; false alarm below 1e-6."""
    rng = np.random.default_rng(7)
    target, draft = make_target(64, rng), make_target(64, rng)
    p = law_function(target)
    best = [int(token) for token in np.argsort(-target)[:4]]
    process: Process = (
        certain_process(p, best, [-1, -1, 0, 1])
        if kind == "certain"
        else sampled_tree_process(p, law_function(draft), (3, 2))
    )
    chance = RandomChance(rng)
    first = [process((), chance).tokens[0] for _ in range(20_000 if kind == "certain" else 4_000)]
    counts = np.bincount(first, minlength=64)[None]
    assert sample_fit(counts, target[None]).p_value > 1e-6
    assert sample_fit(counts, draft[None]).p_value < 1e-12  # the test can tell laws apart


@pytest.mark.parametrize(
    ("tokens", "parents", "message"),
    [
        ([0, 1], [-1], "2 tokens but 1 parents"),
        ([0, 1], [-1, 1], r"parents\[1\] is 1; parents come before their children"),
        ([0, 1], [-2, 0], r"parents\[0\] is -2"),
        ([1, 1], [-1, -1], "node 1 repeats token 1 under parent -1"),
        ([0, 5], [-1, 0], r"tokens\[1\] is 5"),
    ],
)
def test_malformed_trees(tokens: list[int], parents: list[int], message: str) -> None:
    rows, uniforms = np.stack([P] * 3), [0.5] * 3
    with pytest.raises(ConfigError, match=message):
        certain_tree_step(rows, tokens, parents, uniforms)
    with pytest.raises(ConfigError, match=message):
        sampled_tree_step(rows, rows, tokens, parents, uniforms)


def test_arrays_that_do_not_fit_the_tree() -> None:
    with pytest.raises(ConfigError, match="p has 1 rows; this draft needs 2"):
        certain_tree_step([P], [0], [-1], [0.5, 0.5])
    with pytest.raises(ConfigError, match="both need the same vocabulary"):
        sampled_tree_step([P] * 2, [[0.5, 0.5]] * 2, [0], [-1], [0.5, 0.5])
    with pytest.raises(ConfigError, match="node 0 holds token 2, which its parent's draft law gives"):
        sampled_tree_step([P] * 2, [[0.5, 0.5, 0.0]] * 2, [2], [-1], [0.5, 0.5])
    with pytest.raises(ConfigError, match="uniforms has shape"):
        certain_tree_step([P] * 2, [0], [-1], [0.5])
