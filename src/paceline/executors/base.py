"""The executor protocol: one ragged forward pass over any mix of prompt chunks and drafts.

A sequence (one request's tokens) stores keys and values in *logical slots* 0, 1, 2, … that its block table
maps to physical blocks of ``block_size`` slots. The slot of a committed token equals its position; drafted
nodes take the slots behind the committed ones, in draft order.

Row ``t`` attends to logical slots ``0 … prefix_lengths[t] - 1`` of its sequence and then to its *tail*: the
slots of its ancestors in the draft and its own slot, in position order. A row of a prompt chunk or a chain
has an empty tail and ``prefix_lengths[t] = position + 1``. Hence position = prefix length + tail length - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from paceline.records import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One forward pass. All arrays are C-contiguous int32.

    ``tokens`` [T]; ``sequences`` [T]: index of each row's block table; ``slots`` [T]: logical slot its key
    and value are written to; ``prefix_lengths`` [T]; ``tail_offsets`` [T + 1] into ``tails`` (logical slots);
    ``block_offsets`` [S + 1] into ``blocks`` (physical block ids, one run per sequence); ``logit_rows`` [R]:
    rows whose logits are wanted. Rows of one sequence stand in an order in which ancestors come first.
    """

    tokens: IntArray
    sequences: IntArray
    slots: IntArray
    prefix_lengths: IntArray
    tail_offsets: IntArray
    tails: IntArray
    block_offsets: IntArray
    blocks: IntArray
    logit_rows: IntArray

    @classmethod
    def chain(
        cls, tokens: Sequence[int] | IntArray, start: int, blocks: Sequence[int] | IntArray, num_logits: int
    ) -> ForwardBatch:
        """Return the pass over one sequence's ``tokens`` at positions ``start …``, whose table is ``blocks``.

        Logits are asked for of the last ``num_logits`` rows.
        """
        count = len(tokens)
        positions: IntArray = np.arange(start, start + count, dtype=np.int32)
        return cls(
            tokens=np.ascontiguousarray(tokens, dtype=np.int32),
            sequences=np.zeros(count, dtype=np.int32),
            slots=positions,
            prefix_lengths=positions + np.int32(1),
            tail_offsets=np.zeros(count + 1, dtype=np.int32),
            tails=np.empty(0, dtype=np.int32),
            block_offsets=np.array((0, len(blocks)), dtype=np.int32),
            blocks=np.ascontiguousarray(blocks, dtype=np.int32),
            logit_rows=np.arange(count - num_logits, count, dtype=np.int32),
        )


class Executor(Protocol):
    """Runs a target or a draft model and owns the memory of its KV cache (not its bookkeeping)."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_context(self) -> int:
        """Longest sequence the model was made for, in tokens."""
        ...

    @property
    def block_size(self) -> int:
        """Slots per KV block."""
        ...

    @property
    def num_blocks(self) -> int:
        """Physical KV blocks that exist."""
        ...

    def forward(self, batch: ForwardBatch) -> FloatArray:
        """Store the keys and values of all rows; return logits float32 [R, V] for ``logit_rows``.

        The array may be reused by the next call: copy what must outlive it. The logits of a row depend on
        its tokens and the weights only, bit for bit (design.md, law 7).
        """
        ...

    def forward_with_states(
        self, batch: ForwardBatch, layers: Sequence[int]
    ) -> tuple[FloatArray, FloatArray]:
        """Return what ``forward`` does, and hidden states of *all* rows, float32 [T, len(layers) * Ht].

        Ht is the model's width. A state is the residual stream *entering* layer ``layers[i]`` (0-based); the
        number of layers stands for the output of the last one, before the final norm. States of a row stand
        side by side in the order of ``layers``. They are the caller's to keep, and depend on a row's tokens
        and the weights only, bit for bit. Raises ``ConfigError`` for an id out of range.
        """
        ...

    def move_slots(self, source: IntArray, destination: IntArray) -> None:
        """Copy keys and values between physical slots (block * block_size + offset), in order. int32 [N]."""
        ...

    def first_layers(self, num_layers: int, num_blocks: int) -> Executor:
        """Return an executor that shares these weights but runs only the first layers, with its own cache."""
        ...
