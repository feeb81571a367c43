"""Coupled acceptance: the text is a function of (target, seed, position), and the pair law is exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import ConfigError
from paceline.theory import coupled_pair_law, coupled_token, gumbel_noise, make_markov_target, make_target
from paceline.theory.fit import sample_fit
from paceline.theory.laws import law_function
from paceline.theory.processes import coupled_process
from paceline.theory.simulate import run_loop
from support.theory_laws import laws


@given(vocab=st.integers(2, 6), data=st.data())
@settings(deadline=None)
def test_the_pair_law_has_the_right_marginals(vocab: int, data: st.DataObject) -> None:
    p, q = data.draw(laws(vocab)), data.draw(laws(vocab))
    pair = coupled_pair_law(p, q)
    assert pair.min() >= 0
    np.testing.assert_allclose(pair.sum(axis=1), p, atol=1e-12)
    np.testing.assert_allclose(pair.sum(axis=0), q, atol=1e-12)
    assert np.trace(pair) <= np.minimum(p, q).sum() + 1e-12  # no coupling beats the overlap


def test_the_pair_law_is_what_shared_noise_does() -> None:
    """20,000 positions, 36 pairs against the closed form; false alarm below 1e-6."""
    rng = np.random.default_rng(3)
    p, q = make_target(6, rng), make_target(6, rng)
    counts = np.zeros((6, 6), dtype=np.int64)
    for position in range(20_000):
        noise = gumbel_noise(11, position, 6)
        counts[coupled_token(p, noise), coupled_token(q, noise)] += 1
    assert sample_fit(counts.reshape(1, -1), coupled_pair_law(p, q).reshape(1, -1)).p_value > 1e-6
    assert sample_fit(counts.reshape(1, -1), np.outer(p, q).reshape(1, -1)).p_value < 1e-12


def test_equal_laws_always_agree_and_disjoint_ones_never() -> None:
    p = np.array([0.2, 0.8])
    np.testing.assert_allclose(coupled_pair_law(p, p), np.diag(p), atol=1e-15)
    assert np.trace(coupled_pair_law([1.0, 0.0], [0.0, 1.0])) == 0.0


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_the_text_does_not_depend_on_drafter_or_draft_length(seed: int) -> None:
    rng = np.random.default_rng(4)
    target = law_function(make_markov_target(16, rng))
    drafts = [law_function(make_markov_target(16, rng)), law_function(make_target(16, rng)), target]
    texts = {
        tuple(run_loop(coupled_process(target, draft, length, seed), 60, rng).tokens[:60].tolist())
        for draft in drafts
        for length in (0, 1, 2, 5)
    }
    assert len(texts) == 1


def test_noise_is_a_function_of_seed_and_position() -> None:
    noise = gumbel_noise(5, 9, 32)
    np.testing.assert_array_equal(noise, gumbel_noise(5, 9, 32))
    np.testing.assert_array_equal(noise[:8], gumbel_noise(5, 9, 8))  # padding the vocabulary changes nothing
    for other in (gumbel_noise(6, 9, 32), gumbel_noise(5, 10, 32)):
        assert not np.isin(noise, other).any()


def test_noise_of_neighbouring_positions_is_gumbel() -> None:
    """Mean 0.5772 and variance 1.6449 over 200,000 numbers; the bounds are five standard errors (3e-7)."""
    noise = np.concatenate([gumbel_noise(1, position, 200) for position in range(1000)])
    assert np.isfinite(noise).all()
    assert abs(noise.mean() - 0.577216) < 5 * 1.2825 / np.sqrt(noise.size)
    assert abs(noise.var() - 1.644934) < 5 * 1.644934 * np.sqrt(4.4 / noise.size)
    lag = np.corrcoef(noise[:-200], noise[200:])[0, 1]
    assert abs(lag) < 5 / np.sqrt(noise.size)


def test_excluded_tokens_never_win() -> None:
    law = np.array([0.0, 1e-300, 0.0])
    assert coupled_token(law, np.array([700.0, -700.0, 700.0])) == 1


@pytest.mark.parametrize(
    "change", [{"seed": -1}, {"position": -1}, {"vocab": 0}, {"seed": 2**64}, {"seed": 1.5}]
)
def test_bad_keys(change: dict[str, int]) -> None:
    (name,) = change
    with pytest.raises(ConfigError, match=f"{name} is {change[name]}"):
        gumbel_noise(**{"seed": 0, "position": 0, "vocab": 4, **change})
