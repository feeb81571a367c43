"""Where the loop takes its randomness from.

Acceptance and sampling are written against :class:`Chance`: two ways to draw and one coin. The engine uses
:class:`SeededChance`; the tests hand in one that takes every branch with its exact probability, so what they
prove is the code that runs.

Every number belongs to the seed and a position (design.md, law 6). A token that is drawn for a position uses
that position. What concerns a whole draft (whether its tokens are kept) uses the position of the root, which
grows at every step, and the depth: a later step never meets a number that an earlier one used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from paceline.records import TokenLaw
from paceline.sampling import kernels
from paceline.sampling.noise import Stream, noise_key, uniform


class Chance(Protocol):
    """Draws and coin flips of one request."""

    def accepts(self, probability: float, root: int, depth: int) -> bool:
        """Return True with ``probability``, for the draft behind position ``root``; always for 1."""
        ...

    def draw(self, law: TokenLaw, position: int) -> int:
        """Return a token of ``law`` for ``position``."""
        ...

    def draw_draft(self, law: TokenLaw, root: int, depth: int) -> int:
        """Return a token of ``law`` to be drafted ``depth`` behind position ``root``."""
        ...

    def draw_coupled(self, law: TokenLaw, position: int) -> int:
        """Return the token of ``law`` that the shared noise of ``position`` picks, for target and drafter."""
        ...


@dataclass(frozen=True, slots=True)
class SeededChance:
    """Counter-based chance. ``seed``: 64 bits, the user's or a fresh one."""

    seed: int

    def accepts(self, probability: float, root: int, depth: int) -> bool:
        return uniform(self.seed, root, Stream.ACCEPT, depth) < probability

    def draw(self, law: TokenLaw, position: int) -> int:
        return kernels.inverse_token(law, uniform(self.seed, position, Stream.FINAL, 0))

    def draw_draft(self, law: TokenLaw, root: int, depth: int) -> int:
        return kernels.inverse_token(law, uniform(self.seed, root, Stream.DRAFT, depth))

    def draw_coupled(self, law: TokenLaw, position: int) -> int:
        return kernels.coupled_token(law, noise_key(self.seed, position, Stream.TOKEN))
