"""The n-gram drafter: what followed last time these tokens stood here.

It looks for the longest run of the request's own last tokens that occurred before (``max_n`` down to
``min_n`` tokens, the newest occurrence of each) and proposes what came after it. There is one hash table per
n, fed one token at a time, so memory is O(n) in the request's length and a proposal costs microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paceline.config import Settings, check_int
from paceline.drafters.base import DraftContext, DrafterCapabilities
from paceline.errors import ConfigError
from paceline.records import EMPTY_DRAFT, Draft, StepObservation

_TOKEN_BITS = 32  # an n-gram's key is its token ids side by side in one integer: exact, no collisions


@dataclass(frozen=True, slots=True)
class NgramOptions(Settings):
    """``min_n``, ``max_n``: shortest and longest run of tokens to look up. 1 ≤ min_n ≤ max_n ≤ 16."""

    min_n: int = 2
    max_n: int = 5

    def __post_init__(self) -> None:
        check_int("ngram: max_n", self.max_n, 1, 16)
        check_int("ngram: min_n", self.min_n, 1)
        if self.min_n > self.max_n:
            raise ConfigError(f"ngram: min_n={self.min_n} is larger than max_n={self.max_n}; lower min_n")


class NgramIndex:
    """A token sequence and, for every n, where each of its n-grams was followed by another token last."""

    __slots__ = ("_keys", "_max_n", "_min_n", "_positions", "tokens")

    def __init__(self, options: NgramOptions) -> None:
        self._min_n = options.min_n
        self._max_n = options.max_n
        self.tokens: list[int] = []
        # _positions[n - min_n][key]: index of the token that followed the newest occurrence.
        self._positions: list[dict[int, int]] = [{} for _ in range(options.min_n, options.max_n + 1)]
        # Keys of the n-grams that end the sequence; they enter the tables once their follower is known.
        self._keys: list[int] = []

    def extend(self, tokens: Iterable[int]) -> None:
        """Append ``tokens``. O(max_n) per token."""
        history, positions, min_n, max_n = self.tokens, self._positions, self._min_n, self._max_n
        keys = self._keys
        for token in tokens:
            position = len(history)
            for table, key in zip(positions, keys, strict=False):
                table[key] = position
            history.append(token)
            keys = []
            key = 0
            for n in range(1, min(max_n, position + 1) + 1):
                key |= history[position + 1 - n] << (_TOKEN_BITS * (n - 1))
                if n >= min_n:
                    keys.append(key)
        self._keys = keys

    def longest_match(self) -> tuple[int, int]:
        """Return (n, index of the token that followed the newest occurrence), or (0, -1) without a match."""
        for offset in range(len(self._keys) - 1, -1, -1):
            found = self._positions[offset].get(self._keys[offset])
            if found is not None:
                return self._min_n + offset, found
        return 0, -1

    def continuation(self, start: int, count: int) -> list[int]:
        """Return ``count`` tokens from index ``start`` on; past the end, the copy continues with itself.

        That is how a repetition whose period is shorter than ``count`` goes on (as in LZ77).
        """
        taken = self.tokens[start : start + count]
        period = len(self.tokens) - start
        while len(taken) < count:
            taken.append(taken[len(taken) - period])
        return taken


class NgramSession:
    """N-gram drafting for one request."""

    __slots__ = ("_index",)

    def __init__(self, options: NgramOptions, prompt: tuple[int, ...]) -> None:
        self._index = NgramIndex(options)
        self._index.extend(prompt)

    def propose(self, budget: int) -> Draft:
        """Return the chain that followed the longest match, or an empty draft."""
        if budget <= 0:
            return EMPTY_DRAFT
        length, start = self._index.longest_match()
        return Draft.chain(self._index.continuation(start, budget)) if length else EMPTY_DRAFT

    def observe(self, step: StepObservation) -> None:
        """Index the committed tokens."""
        self._index.extend(step.committed)

    def stop(self) -> None:
        """Nothing is held outside the session."""


@dataclass(frozen=True, slots=True)
class NgramDrafter:
    """Opens :class:`NgramSession` objects; holds no state of its own."""

    options: NgramOptions = NgramOptions()

    @property
    def name(self) -> str:
        return "ngram"

    @property
    def capabilities(self) -> DrafterCapabilities:
        return DrafterCapabilities()

    def start(self, context: DraftContext) -> NgramSession:
        """Index the prompt. O(prompt length)."""
        return NgramSession(self.options, context.prompt_token_ids)
