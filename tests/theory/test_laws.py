"""Laws: what is refused and how the refusal reads, and the drawing of tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline import theory
from paceline.errors import ConfigError
from paceline.theory.laws import FloatArray, check_laws, check_model, draw, occupation
from support.theory_laws import laws

GOOD = np.array([0.25, 0.75])
RNG = np.random.default_rng(0)

BAD_LAWS = [
    ([0.5, -0.1, 0.6], "is negative at token 1"),
    ([0.5, 0.6], "sums to 1.1; divide by its sum"),
    ([0.0, 0.0], "sums to 0"),
    ([0.5, float("nan")], "holds NaN at token 1; mask bad logits"),
    ([float("inf"), 0.0], "sums to inf"),
    ([], r"has shape \(0,\)"),
    ([[[1.0]]], r"has shape \(1, 1, 1\)"),
    ([[0.5, 0.5]], r"has shape \(1, 2\)"),
    ([[1.0], [0.5, 0.5]], "no rectangular array of numbers"),
    (["a", "b"], "no rectangular array of numbers"),
]

TAKES_TWO_LAWS: list[Callable[[object, object], object]] = [
    theory.residual,
    theory.overlap,
    theory.coupled_pair_law,
    lambda p, q: theory.accept_probability(p, q, 0),
    theory.measure_alpha,
    theory.kl,
    lambda p, q: theory.simulate(p, q, 1, 10, RNG),
    lambda p, q: theory.verify_distribution(p, q, 1, 10, RNG),
]


@pytest.mark.parametrize(("law", "message"), BAD_LAWS)
@pytest.mark.parametrize("function", TAKES_TWO_LAWS)
def test_bad_laws_are_refused_by_name(function: Callable[..., object], law: object, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^(p|target) .*{message}"):
        function(law, GOOD)
    with pytest.raises(ConfigError, match=rf"^(q|draft) .*{message}"):
        function(GOOD, law)


@pytest.mark.parametrize("function", TAKES_TWO_LAWS)
def test_vocabularies_of_different_size_are_refused(function: Callable[..., object]) -> None:
    with pytest.raises(ConfigError, match=r"2 tokens but .*3.*same vocabulary"):
        function(GOOD, [0.2, 0.3, 0.5])


def test_a_bad_row_is_named() -> None:
    with pytest.raises(ConfigError, match="p is negative at row 1, token 0"):
        check_laws([[0.5, 0.5], [-0.5, 1.5]], "p")
    with pytest.raises(ConfigError, match="p has 1 rows; this draft needs 3"):
        check_laws([[0.5, 0.5]], "p", rows=3)
    with pytest.raises(ConfigError, match="a Markov law is square"):
        check_model([[0.5, 0.5]], "target")


def test_float32_laws_are_taken_as_they_come() -> None:
    logits = np.random.default_rng(1).normal(size=1000).astype(np.float32)
    law = np.exp(logits) / np.exp(logits).sum(dtype=np.float32)
    assert theory.residual(law, np.full(1000, 1e-3)).dtype == np.float64


@given(law=laws(6), uniform=st.floats(0, 1, exclude_max=True))
@settings(deadline=None)
def test_draw_inverts_the_cumulative_law(law: FloatArray, uniform: float) -> None:
    token = draw(law, uniform)
    assert law[token] > 0
    assert law[:token].sum() <= uniform + 1e-12
    assert law[: token + 1].sum() >= uniform - 1e-12


def test_draw_never_leaves_the_support_at_the_ends() -> None:
    law = np.array([0.0, 0.3, 0.0, 0.7, 0.0])
    assert draw(law, 0.0) == 1
    assert draw(law, 1 - 2**-53) == 3
    assert draw(law * 3.3, 1 - 2**-53) == 3


def test_occupation_of_periodic_and_reducible_chains() -> None:
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    np.testing.assert_allclose(occupation(swap), [0.5, 0.5], atol=1e-12)
    stuck = np.array([[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(occupation(stuck, root=1), [0.0, 1.0], atol=1e-12)
    drift = np.array([[0.9, 0.1], [0.4, 0.6]])
    np.testing.assert_allclose(occupation(drift), [0.8, 0.2], atol=1e-12)
