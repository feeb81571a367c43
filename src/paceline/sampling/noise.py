"""Counter-based noise: a random number belongs to (seed, position, stream, id) and to nothing else.

The generator is SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"):
output number n of the stream that starts at state s is ``mix(s + (n + 1) * GOLDEN)``, so any output is
reached without the ones before it. A *key* is the start state that belongs to (seed, position, stream); the
id counts outputs. Positions are absolute in the sequence (prompt included), counted from 0.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

GOLDEN: Final = 0x9E3779B97F4A7C15
_MASK: Final = 0xFFFFFFFFFFFFFFFF
MAX_SEED: Final = _MASK


class Stream(IntEnum):
    """What a number is used for; equal positions in different streams share nothing."""

    TOKEN = 0
    """Shared noise of coupled draws, of target and drafter alike. id: token id."""
    DRAFT = 1
    """Draws of drafted tokens. position: the root's; id: depth."""
    ACCEPT = 2
    """Whether a drafted token is kept. position: the root's; id: node or depth."""
    FINAL = 3
    """The recovered or bonus token. position: the root's; id: 0."""


def mix(word: int) -> int:
    """Return the SplitMix64 finaliser of a 64-bit word (a bijection)."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


def noise_key(seed: int, position: int, stream: Stream) -> int:
    """Return the 64-bit start state of (seed, position, stream).

    Each part passes the finaliser before the next one joins, so neighbouring seeds, positions and streams
    start at unrelated states.
    """
    state = mix((seed + GOLDEN) & _MASK)
    state = mix((state + (position + 1) * GOLDEN) & _MASK)
    return mix((state + (stream + 1) * GOLDEN) & _MASK)


def noise_word(key: int, index: int) -> int:
    """Return output number ``index`` (64 bits) of the stream that starts at ``key``."""
    return mix((key + (index + 1) * GOLDEN) & _MASK)


def uniform_of_word(word: int) -> float:
    """Return the uniform in (0, 1) made of a word's top 52 bits, exact in a double, never 0 or 1."""
    return ((word >> 12) + 0.5) * 2.0**-52


def uniform(seed: int, position: int, stream: Stream, index: int) -> float:
    """Return the uniform in (0, 1) that belongs to (seed, position, stream, index)."""
    return uniform_of_word(noise_word(noise_key(seed, position, stream), index))
