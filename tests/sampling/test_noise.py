"""Noise is a pure function of (seed, position, stream, id), equal in Python and C++, and looks uniform."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from paceline.native import _core
from paceline.records import TokenLaw
from paceline.sampling import kernels
from paceline.sampling.chance import SeededChance
from paceline.sampling.noise import GOLDEN, Stream, mix, noise_key, noise_word, uniform, uniform_of_word

KEYS = (0x238275BC38FCBE91, 0xB6F12C62A4F9E4F3, 0xCC3DA34B79797AF0)
UNIFORM = 0.7725655658836329
WORDS = st.integers(0, 2**64 - 1)


def test_splitmix64_known_answers() -> None:
    """The published stream of seed 1234567 (Rosetta Code, from Vigna's reference program)."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [noise_word(1234567, index) for index in range(4)] == published
    assert mix(GOLDEN) == 0xE220A8397B1DCDAF  # first output of seed 0


def test_our_own_known_answers() -> None:
    """Replies of seeded requests must not change between versions: these values are a promise."""
    assert noise_key(0, 0, Stream.TOKEN) == KEYS[0]
    assert noise_key(42, 7, Stream.ACCEPT) == KEYS[1]
    assert noise_key(2**64 - 1, 10**6, Stream.FINAL) == KEYS[2]
    assert uniform(42, 7, Stream.ACCEPT, 3) == UNIFORM


@given(key=WORDS, index=st.integers(0, 2**31 - 1))
def test_native_words_are_the_same(key: int, index: int) -> None:
    assert _core.sampling.noise_word(key, index) == noise_word(key, index)


def test_uniforms_stay_inside_the_unit_interval() -> None:
    assert 0.0 < uniform_of_word(0) < uniform_of_word(2**64 - 1) < 1.0


def test_neighbours_start_at_different_states() -> None:
    keys = {
        noise_key(seed, position, stream) for seed in range(20) for position in range(20) for stream in Stream
    }
    assert len(keys) == 20 * 20 * len(Stream)


@pytest.mark.parametrize("vary", ["seed", "position", "id"])
def test_uniformity(vary: str) -> None:
    """Kolmogorov-Smirnov on 20,000 numbers, and lag-one correlation. False alarm: 1e-7 each."""
    place = {"seed": 5, "position": 9, "id": 4}
    numbers = []
    for value in range(20_000):
        place[vary] = value
        numbers.append(uniform(place["seed"], place["position"], Stream.TOKEN, place["id"]))
    assert stats.kstest(numbers, "uniform").pvalue > 1e-7
    correlation = np.corrcoef(numbers[:-1], numbers[1:])[0, 1] * np.sqrt(len(numbers))
    assert abs(correlation) < stats.norm.isf(0.5e-7)


@pytest.mark.parametrize("way", ["draw", "draw_draft", "draw_coupled"])
@pytest.mark.parametrize("vary", ["seed", "position"])
def test_draws_follow_their_law(way: str, vary: str) -> None:
    """Chi-square over 20,000 draws, one per seed or per position. False alarm: 1e-7."""
    law = TokenLaw(np.array([2, 3, 50, 99], np.int32), np.array([0.5, 0.3, 0.15, 0.05]))
    counts = dict.fromkeys(law.ids.tolist(), 0)
    for value in range(20_000):
        chance = SeededChance(value if vary == "seed" else 3)
        position = 11 if vary == "seed" else value
        arguments = (law, position, 2) if way == "draw_draft" else (law, position)
        counts[getattr(chance, way)(*arguments)] += 1
    assert stats.chisquare(list(counts.values()), law.probs * 20_000).pvalue > 1e-7


def test_coupled_draws_agree_when_laws_are_close() -> None:
    """Shared noise: two laws 5 % apart draw the same token far more often than independent draws would."""
    p = TokenLaw(np.arange(4, dtype=np.int32), np.array([0.4, 0.3, 0.2, 0.1]))
    q = TokenLaw(np.arange(4, dtype=np.int32), np.array([0.35, 0.35, 0.2, 0.1]))
    same = sum(
        kernels.coupled_token(p, key) == kernels.coupled_token(q, key) for key in map(mix, range(2000))
    )
    assert same > 1700  # closed form 0.92; independent draws 0.31. False alarm below 1e-12 (binomial).
