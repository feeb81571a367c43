"""The forward of one request whose rows follow each other, laid out without lists.

Most forwards are such: a token, a chain behind it, a piece of a prompt. A forward leaves the caches full of
weights, so that each line of Python between two of them costs several times what it does in a loop.
:class:`~paceline.engine.verify.BatchBuilder` is the reference.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from paceline.executors.base import ForwardBatch
from paceline.records import Draft, IntArray

if TYPE_CHECKING:
    from paceline.engine.scheduler import Plan

_FEWEST_POSITIONS = 4096


def chain_batch(plan: Plan, draft: Draft) -> ForwardBatch:
    """Return the batch of ``plan`` alone with a chain as ``draft``, which may be empty."""
    request = plan.request
    start, stop = request.computed, request.computed + plan.num_pending
    end = stop + len(draft)
    positions = _positions(_room(end + 1))
    sequences, tail_offsets, tails, logit_rows = _constants(
        end - start, 1 + len(draft) if plan.reaches_end else 0
    )
    blocks = request.table.blocks
    return ForwardBatch(
        tokens=np.array((*request.tokens[start:stop], *draft.tree.tokens), dtype=np.int32),
        sequences=sequences,
        slots=positions[start:end],
        prefix_lengths=positions[start + 1 : end + 1],
        tail_offsets=tail_offsets,
        tails=tails,
        block_offsets=np.array((0, len(blocks)), dtype=np.int32),
        blocks=np.array(blocks, dtype=np.int32),
        logit_rows=logit_rows,
    )


def _room(length: int) -> int:
    """Return a power of two that ``length`` fits in, so that few arrays of positions are made."""
    return max(_FEWEST_POSITIONS, 1 << (length - 1).bit_length())


@lru_cache(maxsize=4)
def _positions(length: int) -> IntArray:
    return _shared(np.arange(length, dtype=np.int32))


@lru_cache(maxsize=256)
def _constants(num_rows: int, num_logits: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return what depends on these numbers alone: sequences, tail offsets, tails, rows with logits."""
    return (
        _shared(np.zeros(num_rows, dtype=np.int32)),
        _shared(np.zeros(num_rows + 1, dtype=np.int32)),
        _shared(np.empty(0, dtype=np.int32)),
        _shared(np.arange(num_rows - num_logits, num_rows, dtype=np.int32)),
    )


def _shared(array: IntArray) -> IntArray:
    array.flags.writeable = False
    return array
