"""Synthetic laws hit the acceptance they are asked for; acceptance and divergence of given laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import ConfigError
from paceline.theory import kl, make_draft, make_markov_target, make_target, measure_alpha
from paceline.theory.laws import check_model

seeds = st.integers(0, 2**32 - 1)


@given(alpha=st.floats(0.05, 0.99), vocab=st.integers(20, 300), seed=seeds)
@settings(deadline=None)
def test_drafts_hit_the_hint(alpha: float, vocab: int, seed: int) -> None:
    """The demand is 0.01; the construction is exact, so this holds it to rounding."""
    rng = np.random.default_rng(seed)
    target = make_target(vocab, rng)
    draft = check_model(make_draft(target, alpha, rng), "draft")
    assert measure_alpha(target, draft) == pytest.approx(alpha, abs=1e-12)


@given(alpha=st.floats(0.05, 0.99), seed=seeds)
@settings(deadline=None, max_examples=30)
def test_markov_drafts_hit_the_hint_in_every_row(alpha: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    target = make_markov_target(24, rng)
    draft = make_draft(target, alpha, rng)
    np.testing.assert_allclose(np.minimum(target, draft).sum(axis=1), alpha, atol=1e-12)
    assert measure_alpha(target, draft) == pytest.approx(alpha, abs=1e-12)


@pytest.mark.parametrize("vocab", [2, 3, 50_000])
@pytest.mark.parametrize("alpha", [0.5, 0.9, 1.0])
def test_small_and_large_vocabularies(vocab: int, alpha: float) -> None:
    rng = np.random.default_rng(1)
    target = make_target(vocab, rng)
    assert measure_alpha(target, make_draft(target, alpha, rng)) == pytest.approx(alpha, abs=1e-11)


def test_targets_and_drafts_are_laws_and_repeat_with_the_generator() -> None:
    for make in (make_target, make_markov_target):
        first, second = (make(12, np.random.default_rng(3)) for _ in range(2))
        np.testing.assert_array_equal(check_model(first, "target"), second)
        assert (first > 0).all()


def test_drafts_are_not_all_alike() -> None:
    rng = np.random.default_rng(3)
    target = make_target(32, rng)
    first, second = make_draft(target, 0.7, rng), make_draft(target, 0.7, rng)
    assert np.abs(first - second).sum() > 0.05


def test_hints_at_the_ends() -> None:
    rng = np.random.default_rng(4)
    target = np.array([0.5, 0.5, 0.0, 0.0])
    np.testing.assert_array_equal(make_draft(target, 1.0, rng), target)
    assert measure_alpha(target, make_draft(target, 0.0, rng)) == 0.0  # disjoint supports
    with pytest.raises(ConfigError, match=r"alpha_hint is 0.3, but no draft overlaps .* probability, 0.5;"):
        make_draft([0.5, 0.5], 0.3, rng)
    assert measure_alpha([0.6, 0.4], make_draft([0.6, 0.4], 0.4, rng)) == pytest.approx(0.4)


@pytest.mark.parametrize("hint", [-0.1, 1.1, math.nan])
def test_hints_outside_the_unit_interval(hint: float) -> None:
    with pytest.raises(ConfigError, match=r"alpha_hint is .*; give a probability between 0 and 1"):
        make_draft([0.5, 0.5], hint, np.random.default_rng(0))


@pytest.mark.parametrize("vocab", [0, 1, -3, 2.5])
def test_vocabularies_that_are_too_small(vocab: int) -> None:
    for make in (make_target, make_markov_target):
        with pytest.raises(ConfigError, match=r"vocab is .*; give a whole number of at least 2"):
            make(vocab, np.random.default_rng(0))


def test_measured_alpha_weighs_contexts_as_the_target_visits_them() -> None:
    """Long-run shares 0.8 and 0.2; acceptance 1 after token 0 and 0.5 after token 1."""
    target = np.array([[0.9, 0.1], [0.4, 0.6]])
    draft = np.array([[0.9, 0.1], [0.9, 0.1]])
    assert measure_alpha(target, draft) == pytest.approx(0.8 * 1.0 + 0.2 * 0.5)
    assert measure_alpha(target, [0.9, 0.1]) == pytest.approx(0.9)  # a context-free draft stands in every row


def test_kl() -> None:
    assert kl([0.5, 0.5], [0.25, 0.75]) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert kl([0.5, 0.5], [0.5, 0.5]) == 0.0
    assert kl([1.0, 0.0], [0.5, 0.5]) == pytest.approx(
        math.log(2)
    )  # q > 0 where p = 0 costs nothing by itself
    assert kl([0.5, 0.5], [1.0, 0.0]) == math.inf
    target = np.array([[0.9, 0.1], [0.4, 0.6]])
    weighted = 0.2 * (0.4 * math.log(0.4 / 0.9) + 0.6 * math.log(6.0))
    assert kl(target, [0.9, 0.1]) == pytest.approx(weighted)
