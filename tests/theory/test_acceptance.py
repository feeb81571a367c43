"""The chain rules as pure functions of explicit uniforms: values, edges, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import ConfigError
from paceline.theory import (
    StepOutcome,
    accept_probability,
    block_verification_step,
    coupled_step,
    greedy_step,
    overlap,
    residual,
    speculative_step,
)
from paceline.theory.acceptance import block_probabilities
from paceline.theory.laws import FloatArray
from support.theory_laws import laws

P = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]])
Q = np.array([[0.2, 0.7, 0.1], [0.1, 0.1, 0.8]])


def test_accept_probability() -> None:
    assert accept_probability(P[0], Q[0], 1) == 0.3 / 0.7
    assert accept_probability(P[0], Q[0], 0) == 1.0
    assert accept_probability([1.0, 0.0], [0.5, 0.5], 1) == 0.0


def test_a_token_the_draft_law_excludes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"draft token 1 at depth 1 has q = 0.*after the very filters"):
        accept_probability([0.5, 0.5], [1.0, 0.0], 1)
    for step in (speculative_step, block_verification_step):
        with pytest.raises(ConfigError, match="draft token 1 at depth 2 has q = 0"):
            step([[0.5, 0.5]] * 3, [[0.5, 0.5], [1.0, 0.0]], [1, 1], [0.1, 0.1, 0.1])


@given(p=laws(5), q=laws(5))
@settings(deadline=None)
def test_residual_is_what_acceptance_leaves_owed(p: FloatArray, q: FloatArray) -> None:
    """min(p, q) + (1 - overlap) residual = p: the identity that makes rejection exact."""
    np.testing.assert_allclose(np.minimum(p, q) + (1 - overlap(p, q)) * residual(p, q), p, atol=1e-12)


def test_residual_edges() -> None:
    np.testing.assert_array_equal(residual([0.5, 0.5], [0.5, 0.5]), [0.5, 0.5])
    np.testing.assert_array_equal(residual([0.5, 0.5, 0.0], [0.0, 0.0, 1.0]), [0.5, 0.5, 0.0])
    np.testing.assert_array_equal(residual([0.0, 1.0], [0.5, 0.5]), [0.0, 1.0])


@pytest.mark.parametrize(
    ("uniforms", "outcome"),
    [
        ([0.42, 0.74, 0.05], StepOutcome((1, 2), 0, bonus=True)),
        ([0.42, 0.74, 0.95], StepOutcome((1, 2), 2, bonus=True)),
        ([0.42, 0.76, 0.49], StepOutcome((1,), 0, bonus=False)),
        ([0.42, 0.76, 0.51], StepOutcome((1,), 1, bonus=False)),
        ([0.43, 0.00, 0.74], StepOutcome((), 0, bonus=False)),
        ([0.43, 0.00, 0.76], StepOutcome((), 2, bonus=False)),
    ],
)
def test_speculative_step_by_hand(uniforms: list[float], outcome: StepOutcome) -> None:
    """Thresholds 3/7 and 6/8; residuals (3/4, 0, 1/4) and (1/2, 1/2, 0)."""
    assert speculative_step(P, Q, [1, 2], uniforms) == outcome
    assert outcome.tokens == (*outcome.accepted, outcome.extra)


def test_block_probabilities_by_hand() -> None:
    """p_1 = 3/7, Z_2 = 0 (3/7 P lies below Q but at 0 and 1: no excess there), p_2 = 3/7 · 3/4 = 9/28."""
    running, kept = block_probabilities(P, Q, (1, 2))
    assert running == pytest.approx([1.0, 3 / 7, 9 / 28], abs=1e-15)
    # max(3/7 (.2, .2, .6) - (.1, .1, .8), 0) is 0 but for 3/35 - 1/10 < 0: nothing is owed behind one token.
    assert kept == pytest.approx([0.0, 9 / 28], abs=1e-15)


@pytest.mark.parametrize(
    ("uniforms", "outcome"),
    [
        ([0.0, 9 / 28 - 1e-9, 0.5], StepOutcome((1, 2), 1, bonus=True)),
        ([0.0, 9 / 28 + 1e-9, 0.74], StepOutcome((), 0, bonus=False)),
        ([0.0, 9 / 28 + 1e-9, 0.76], StepOutcome((), 2, bonus=False)),
    ],
)
def test_block_verification_step_by_hand(uniforms: list[float], outcome: StepOutcome) -> None:
    """h = (0, 9/28): a uniform of exactly 0 must not let a coin of probability 0 say yes."""
    assert block_verification_step(P, Q, [1, 2], uniforms) == outcome


def test_block_takes_the_largest_length_whose_coin_says_yes() -> None:
    p = np.array([[0.5, 0.5], [0.9, 0.1], [0.5, 0.5]])
    q = np.array([[0.8, 0.2], [0.2, 0.8]])
    running, kept = block_probabilities(p, q, (0, 1))
    assert running == pytest.approx([1.0, 0.625, 0.078125])
    assert kept[0] == pytest.approx(0.3625 / (0.3625 + 0.375))
    assert block_verification_step(p, q, [0, 1], [0.99, 0.07, 0.0]).accepted == (0, 1)
    assert block_verification_step(p, q, [0, 1], [0.49, 0.08, 0.0]).accepted == (0,)
    assert block_verification_step(p, q, [0, 1], [0.50, 0.08, 0.0]).accepted == ()


@given(law=laws(4), uniforms=st.lists(st.floats(0, 1, exclude_max=True), min_size=3, max_size=3))
@settings(deadline=None)
def test_equal_laws_accept_everything(law: FloatArray, uniforms: list[float]) -> None:
    token = int(law.argmax())
    for step in (speculative_step, block_verification_step):
        outcome = step([law] * 3, [law] * 2, [token, token], uniforms)
        assert outcome.bonus
        assert outcome.accepted == (token, token)


@pytest.mark.parametrize("empty", [[], np.empty((0, 3))])
def test_no_draft_is_plain_decoding(empty: object) -> None:
    for step in (speculative_step, block_verification_step):
        assert step(P[:1], empty, [], [0.6]) == StepOutcome((), 1, bonus=True)
    assert greedy_step(P[:1], []) == StepOutcome((), 0, bonus=True)
    assert coupled_step(P[:1], [], np.zeros((1, 3))) == StepOutcome((), 0, bonus=True)


def test_greedy_step() -> None:
    assert greedy_step(P, [0, 2]) == StepOutcome((0, 2), 1, bonus=True)
    assert greedy_step(P, [0, 1]) == StepOutcome((0,), 2, bonus=False)
    assert greedy_step(P, [2, 2]) == StepOutcome((), 0, bonus=False)
    assert greedy_step([[0.5, 0.5]], []).extra == 0  # a tie goes to the lowest id


@pytest.mark.parametrize("step", [speculative_step, block_verification_step])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": P[:2]}, "p has 2 rows; this draft needs 3"),
        ({"q": Q[:1]}, "q has 1 rows; this draft needs 2"),
        ({"q": [[0.5, 0.5]] * 2}, "p covers 3 tokens but q 2"),
        ({"tokens": [0, 3]}, r"tokens\[1\] is 3; ids of this vocabulary lie in 0..2"),
        ({"tokens": [-1, 0]}, r"tokens\[0\] is -1"),
        ({"uniforms": [0.5, 0.5]}, r"uniforms has shape \(2,\); give 3"),
        ({"uniforms": [0.5, 0.5, 1.0]}, r"uniforms holds a value outside \[0, 1\)"),
        ({"uniforms": [0.5, 0.5, float("nan")]}, r"outside \[0, 1\)"),
        ({"p": P * 1.1}, "p sums to 1.1"),
    ],
)
def test_arguments_that_do_not_fit(step: object, change: dict[str, object], message: str) -> None:
    arguments = {"p": P, "q": Q, "tokens": [1, 2], "uniforms": [0.1, 0.2, 0.3], **change}
    assert callable(step)
    with pytest.raises(ConfigError, match=message):
        step(**arguments)


def test_coupled_step_refuses_noise_that_does_not_fit() -> None:
    with pytest.raises(ConfigError, match=r"noise has shape \(2, 3\); give one row per law, shape \(3, 3\)"):
        coupled_step(P, [0, 1], np.zeros((2, 3)))
    with pytest.raises(ConfigError, match="noise holds NaN"):
        coupled_step(P, [0, 1], np.full((3, 3), np.nan))
