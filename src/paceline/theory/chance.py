"""Where an acceptance rule takes its randomness from.

Each rule is written once, against :class:`Chance`. Handed explicit uniforms it is a pure function, handed a
generator it simulates, and handed the enumerator of ``enumeration.py`` it takes every branch with its exact
probability. So what is proved is the code that runs, not a second copy of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from paceline.theory.laws import FloatArray, draw


class Chance(Protocol):
    """A source of coin flips and draws; ``index`` names the uniform that decides."""

    def accept(self, probability: float, index: int) -> bool:
        """Return True with ``probability``; never for 0, always for 1."""
        ...

    def draw(self, law: FloatArray, index: int) -> int:
        """Return a token of ``law`` float64 [V]."""
        ...


@dataclass(frozen=True, slots=True)
class UniformChance:
    """Chance from given uniforms: ``accept(p, i)`` is ``uniforms[i] < p``; draws invert the law's sum."""

    uniforms: FloatArray

    def accept(self, probability: float, index: int) -> bool:
        return bool(self.uniforms[index] < probability)

    def draw(self, law: FloatArray, index: int) -> int:
        return draw(law, float(self.uniforms[index]))


@dataclass(frozen=True, slots=True)
class RandomChance:
    """Chance from a generator: a fresh uniform at every call, whatever the index."""

    rng: np.random.Generator

    def accept(self, probability: float, index: int) -> bool:
        return bool(self.rng.random() < probability)

    def draw(self, law: FloatArray, index: int) -> int:
        return draw(law, self.rng.random())
