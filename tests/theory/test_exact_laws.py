"""Every acceptance rule proved against exact enumeration: the joint law of the output is the target's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import ConfigError
from paceline.theory.acceptance import Rule, block_rule, rejection_rule
from paceline.theory.chance import UniformChance
from paceline.theory.enumeration import (
    block_law,
    block_process,
    completed_law,
    mean_tokens,
    outcomes,
    rejection_process,
    step_law,
)
from paceline.theory.laws import FloatArray, LawFunction, law_function
from paceline.theory.processes import (
    certain_process,
    chain_process,
    coupled_pair_process,
    plain_process,
    sampled_tree_process,
)
from support.theory_laws import assert_exact, assert_loop_exact, history_models, laws

RULES = pytest.mark.parametrize("rule", [rejection_rule, block_rule], ids=["rejection", "block"])
few = settings(max_examples=60, deadline=None)

# (tokens, parents): a chain, a fan, two levels, and an unbalanced tree over three tokens.
TREES = [
    ((0, 1), (-1, 0)),
    ((2, 0, 1), (-1, -1, -1)),
    ((1, 0, 0, 2), (-1, -1, 0, 0)),
    ((0, 1, 1, 2, 0), (-1, -1, 0, 2, 2)),
]


@RULES
@given(target=laws(4), draft=laws(4), length=st.integers(0, 2))
@few
def test_chain_context_free(rule: Rule, target: FloatArray, draft: FloatArray, length: int) -> None:
    p = law_function(target)
    assert_exact(chain_process(p, law_function(draft), length, rule), p, length + 1)


@RULES
@given(target=history_models(3, 2), draft=history_models(3, 2))
@few
def test_chain_whole_history(rule: Rule, target: LawFunction, draft: LawFunction) -> None:
    assert_exact(chain_process(target, draft, 2, rule), target, 3)


@RULES
@given(target=history_models(2, 3), draft=history_models(2, 3))
@few
def test_longer_chain_and_horizon_past_the_block(rule: Rule, target: LawFunction, draft: LawFunction) -> None:
    assert_exact(chain_process(target, draft, 3, rule), target, 5)


@RULES
@given(target=history_models(2, 2), draft=history_models(2, 2), length=st.integers(1, 2))
@few
def test_whole_loop(rule: Rule, target: LawFunction, draft: LawFunction, length: int) -> None:
    assert_loop_exact(chain_process(target, draft, length, rule), target, 4)


@given(target=history_models(3, 1), draft=history_models(3, 1), length=st.integers(0, 2))
@few
def test_coupled(target: LawFunction, draft: LawFunction, length: int) -> None:
    assert_exact(coupled_pair_process(target, draft, length), target, 3)


@pytest.mark.parametrize(("tokens", "parents"), TREES)
@given(target=history_models(3, 2))
@few
def test_certain_tree(tokens: tuple[int, ...], parents: tuple[int, ...], target: LawFunction) -> None:
    process = certain_process(target, tokens, parents)
    assert_exact(process, target, 4)
    assert_loop_exact(process, target, 3)


@pytest.mark.parametrize("widths", [(1,), (2,), (3,), (2, 1), (1, 2)])
@given(target=history_models(3, 1), draft=history_models(3, 1))
@settings(max_examples=25, deadline=None)
def test_sampled_tree(widths: tuple[int, ...], target: LawFunction, draft: LawFunction) -> None:
    assert_exact(sampled_tree_process(target, draft, widths), target, len(widths) + 1)


@given(target=laws(5), draft=laws(5))
@few
def test_sampled_fan_of_five_tokens(target: FloatArray, draft: FloatArray) -> None:
    p = law_function(target)
    assert_exact(sampled_tree_process(p, law_function(draft), (4,)), p, 2)


@given(target=laws(4))
@few
def test_plain(target: FloatArray) -> None:
    assert_loop_exact(plain_process(law_function(target)), law_function(target), 3)


@given(target=history_models(3, 2), draft=history_models(3, 2), length=st.integers(1, 2))
@few
def test_block_verification_never_accepts_less(target: LawFunction, draft: LawFunction, length: int) -> None:
    rejection = mean_tokens(chain_process(target, draft, length, rejection_rule))
    block = mean_tokens(chain_process(target, draft, length, block_rule))
    assert block >= rejection - 1e-12


def test_block_verification_accepts_more_somewhere() -> None:
    """Sun et al.'s own example: P = (1/3, 2/3), Q = (2/3, 1/3), K = 2 yields 10/9 + 1 against 11/9 + 1."""
    target, draft = np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3])
    assert mean_tokens(rejection_process(target, draft, 2)) == pytest.approx(1 + 10 / 9, abs=1e-12)
    assert mean_tokens(block_process(target, draft, 2)) == pytest.approx(1 + 11 / 9, abs=1e-12)


@given(target=laws(3), draft=laws(3))
@few
def test_one_draft_token_is_accepted_with_the_overlap(target: FloatArray, draft: FloatArray) -> None:
    for process in (rejection_process, block_process):
        accepted = mean_tokens(process(target, draft, 1)) - 1
        assert accepted == pytest.approx(float(np.minimum(target, draft).sum()), abs=1e-12)


def test_disjoint_supports_accept_nothing() -> None:
    target, draft = np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.0, 1.0])
    for process in (rejection_process, block_process):
        assert block_law(process(target, draft, 2), ()) == {(0,): 0.5, (1,): 0.5}


def test_the_enumerator_weighs_by_hand_computed_numbers() -> None:
    """P = (.5, .5), Q = (.9, .1): token 0 is kept with 5/9, token 1 always, and a rejection gives token 1."""
    law = block_law(rejection_process(np.array([0.5, 0.5]), np.array([0.9, 0.1]), 1), ())
    assert law == pytest.approx(
        {(0, 0): 0.25, (0, 1): 0.25, (1,): 0.4, (1, 0): 0.05, (1, 1): 0.05}, abs=1e-15
    )


def test_outcomes_cover_every_branch_once() -> None:
    seen = dict(
        outcomes(lambda c: (c.accept(0.25, 0), c.draw(np.array([0.5, 0.0, 0.5]), 1), c.accept(1.0, 2)))
    )
    assert seen == {
        (kept, token, True): (0.25 if kept else 0.75) / 2 for kept in (True, False) for token in (0, 2)
    }


def test_uniforms_and_enumeration_agree() -> None:
    """The uniform-driven rules, summed over a fine grid of uniforms, give the enumerated law.

    A boundary misplaces at most one cell of the grid, 1/20 of a coin or 1/80 of a draw.
    """
    p = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]])
    q = np.array([[0.2, 0.7, 0.1], [0.1, 0.1, 0.8]])
    grid = (np.arange(80) + 0.5) / 80
    for rule in (rejection_rule, block_rule):
        exact = step_law(lambda chance, rule=rule: rule(p, q, (1, 2), chance))
        counted: dict[tuple[tuple[int, ...], int], float] = {}
        for u in itertools.product(grid[::4], grid[::4], grid):
            outcome = rule(p, q, (1, 2), UniformChance(np.array(u)))
            key = (outcome.tokens, len(outcome.accepted))
            counted[key] = counted.get(key, 0.0) + 1 / (20 * 20 * 80)
        assert counted.keys() == exact.keys()
        assert max(abs(counted[key] - exact[key]) for key in exact) < 0.05


def test_a_horizon_shorter_than_the_block_is_refused() -> None:
    target = np.array([0.5, 0.5])
    with pytest.raises(ConfigError, match="horizon is 1, but a block has 2 tokens"):
        completed_law(rejection_process(target, target, 1), law_function(target), 1)
