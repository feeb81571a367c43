"""What changes the logits of a row before a token is chosen: one function for the target and for drafters.

In vLLM's order: grammar (illegal tokens masked), min_tokens (stop ids masked), logit bias, repetition penalty
(Keskar et al. 2019, "CTRL": positive logits divided, negative ones multiplied), frequency and presence
penalty (OpenAI's formula). The history is the committed tokens plus the path of the row's node, so every
node of a tree sees its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from paceline.records import Draft, FloatArray
from paceline.sampling.params import SamplingParams


class TokenCounts:
    """How often each token of a sequence occurred in the reply; tokens of the prompt alone count 0.

    Kept as parallel arrays of distinct ids and counts, so that applying a penalty touches those ids only.
    """

    __slots__ = ("_counts", "_ids", "_index", "_size")

    def __init__(self, prompt: Iterable[int]) -> None:
        self._index: dict[int, int] = {}
        self._ids = np.zeros(64, dtype=np.int64)
        self._counts = np.zeros(64, dtype=np.float32)
        self._size = 0
        for token in prompt:
            self._place(token)

    def add(self, token: int) -> None:
        """Count one more ``token`` of the reply."""
        place = self._place(token)  # first, because it may put larger arrays in place of the full ones
        self._counts[place] += 1.0

    def remove_last(self, token: int, size_before: int) -> None:
        """Undo :meth:`add`; ``size_before`` is what :attr:`size` was then."""
        self._counts[self._index[token]] -= 1.0
        if self._size > size_before:
            del self._index[token]
            self._size = size_before

    @property
    def size(self) -> int:
        """Distinct tokens."""
        return self._size

    def penalise(self, row: FloatArray, params: SamplingParams) -> None:
        """Apply the three penalties to ``row`` float32 [V], in place."""
        ids, counts = self._ids[: self._size], self._counts[: self._size]
        logits = row[ids]
        if params.repetition_penalty != 1.0:
            factor = np.float32(params.repetition_penalty)
            logits = np.where(logits > 0, logits / factor, logits * factor)
        logits = logits - np.float32(params.frequency_penalty) * counts
        row[ids] = logits - np.float32(params.presence_penalty) * (counts > 0)

    def _place(self, token: int) -> int:
        place = self._index.get(token)
        if place is not None:
            return place
        place = self._size
        if place == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._index[token] = place
        self._ids[place], self._counts[place] = token, 0.0
        self._size += 1
        return place


class Processors:
    """The processors of one request and the history they need."""

    __slots__ = ("_bias", "_bias_ids", "_counts", "_grammar", "_length", "_masked", "_min_tokens", "_params")

    def __init__(self, params: SamplingParams, prompt: Sequence[int], eos_ids: Iterable[int]) -> None:
        self._params = params
        self._length = 0
        self._min_tokens = params.min_tokens
        masked = set(params.stop_ids) | (set() if params.ignore_eos else set(eos_ids))
        self._masked = np.array(sorted(masked), dtype=np.int64)
        bias = params.logit_bias or {}
        self._bias_ids = np.array(list(bias), dtype=np.int64)
        self._bias = np.array(list(bias.values()), dtype=np.float32)
        self._counts = TokenCounts(prompt) if params.has_penalties else None
        self._grammar = params.grammar.start() if params.grammar is not None else None

    def append(self, token: int) -> None:
        """Take one committed token into the history."""
        self._length += 1
        if self._counts is not None:
            self._counts.add(token)
        if self._grammar is not None:
            self._grammar.append(token)

    def cut(self, draft: Draft) -> Draft:
        """Return ``draft`` without what the grammar would refuse anyway: its rows need not be computed."""
        return draft if self._grammar is None else self._grammar.cut(draft)

    def applies(self, path: tuple[int, ...]) -> bool:
        """Return whether :meth:`apply` would change a row behind ``path``."""
        return (
            self._masks(path) or len(self._bias) > 0 or self._counts is not None or self._grammar is not None
        )

    def _masks(self, path: tuple[int, ...]) -> bool:
        return self._length + len(path) < self._min_tokens and len(self._masked) > 0

    def apply(self, logits: FloatArray, path: tuple[int, ...]) -> FloatArray:
        """Return the processed float32 [V]; ``path``: drafted tokens between the committed ones and this row.

        ``logits`` itself is never changed; it is returned as it is when no processor applies.
        """
        if not self.applies(path):
            return logits
        row = logits.copy()
        if self._grammar is not None:
            self._grammar.mask(row, path)
        if self._masks(path):
            row[self._masked] = -np.inf
        if len(self._bias):
            row[self._bias_ids] += self._bias
        if self._counts is not None:
            self._penalise(self._counts, row, path)
        return row

    def _penalise(self, counts: TokenCounts, row: FloatArray, path: tuple[int, ...]) -> None:
        sizes = []
        for token in path:
            sizes.append(counts.size)
            counts.add(token)
        counts.penalise(row, self._params)
        for token, size in zip(reversed(path), reversed(sizes), strict=True):
            counts.remove_last(token, size)
