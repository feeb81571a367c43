"""A tiny deterministic model in numpy: its logits are a function of the token path in its KV store.

The store keeps, per physical slot, the token written there. A row gathers its path slot by slot, as attention
does, so a lost, shared, stale or misplaced slot changes the logits. Row-invariant by construction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from paceline.executors.base import Executor, ForwardBatch
from paceline.records import FloatArray, IntArray

EMPTY = -1


@lru_cache(maxsize=20000)
def path_logits(path: tuple[int, ...], vocab_size: int, spread: float) -> FloatArray:
    """Return float32 [V]: noise of the last two tokens times ``spread``, and a tenth of noise of the path.

    The last tokens dominate, so texts repeat themselves enough for drafts to be right at times.
    """
    local = np.random.default_rng((1, *path[-2:])).standard_normal(vocab_size)
    whole = np.random.default_rng((2, *path)).standard_normal(vocab_size)
    return (spread * (local + 0.1 * whole)).astype(np.float32)


@lru_cache(maxsize=20000)
def path_state(path: tuple[int, ...], layer: int, size: int) -> FloatArray:
    """Return float32 [size]: noise of the path and the layer."""
    return np.random.default_rng((3, layer, *path)).standard_normal(size).astype(np.float32)


@dataclass
class FakeExecutor:
    """See the module. ``fail_at``: number of the forward that raises ``RuntimeError``, counted from 0."""

    vocab_size: int = 12
    num_blocks: int = 64
    block_size: int = 4
    max_context: int = 4096
    spread: float = 2.0
    state_size: int = 3
    fail_at: int = -1
    num_forwards: int = 0
    batches: list[ForwardBatch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = np.full(self.num_blocks * self.block_size, EMPTY, dtype=np.int64)

    def forward(self, batch: ForwardBatch) -> FloatArray:
        number, self.num_forwards = self.num_forwards, self.num_forwards + 1
        self.batches.append(batch)
        check_batch(batch, self)
        if number == self.fail_at:
            raise RuntimeError("the fake executor was told to fail")
        wanted = set(batch.logit_rows.tolist())
        logits = {}
        for row in range(len(batch.tokens)):
            sequence = batch.sequences[row]
            blocks = batch.blocks[batch.block_offsets[sequence] : batch.block_offsets[sequence + 1]]
            self.store[self._physical(blocks, batch.slots[row : row + 1])] = batch.tokens[row]
            if row in wanted:
                logits[row] = path_logits(self._path(batch, row), self.vocab_size, self.spread)
        if not len(batch.logit_rows):
            return np.zeros((0, self.vocab_size), dtype=np.float32)
        return np.stack([logits[row] for row in batch.logit_rows.tolist()])

    def forward_with_states(
        self, batch: ForwardBatch, layers: Sequence[int]
    ) -> tuple[FloatArray, FloatArray]:
        """States are noise of the path and the layer, ``state_size`` wide."""
        logits = self.forward(batch)
        states = [
            [path_state(self._path(batch, row), layer, self.state_size) for layer in layers]
            for row in range(len(batch.tokens))
        ]
        return logits, np.array(states, dtype=np.float32).reshape(len(batch.tokens), -1)

    def _path(self, batch: ForwardBatch, row: int) -> tuple[int, ...]:
        """Return the tokens that a row sees, itself last."""
        sequence = batch.sequences[row]
        blocks = batch.blocks[batch.block_offsets[sequence] : batch.block_offsets[sequence + 1]]
        tail = batch.tails[batch.tail_offsets[row] : batch.tail_offsets[row + 1]]
        slots = np.concatenate([np.arange(batch.prefix_lengths[row]), tail])
        path = self.store[self._physical(blocks, slots)]
        assert EMPTY not in path, "a row reads a slot that was never written"
        return tuple(path.tolist())

    def move_slots(self, source: IntArray, destination: IntArray) -> None:
        for old, new in zip(source.tolist(), destination.tolist(), strict=True):
            self.store[new] = self.store[old]

    def first_layers(self, num_layers: int, num_blocks: int) -> Executor:
        return FakeExecutor(self.vocab_size, num_blocks, self.block_size, self.max_context, self.spread / 2)

    def _physical(self, blocks: IntArray, slots: IntArray) -> IntArray:
        return blocks[slots // self.block_size] * self.block_size + slots % self.block_size


def check_batch(batch: ForwardBatch, executor: FakeExecutor) -> None:
    """Assert the contract of ``executors/base.py``."""
    count = len(batch.tokens)
    assert count > 0, "an empty forward"
    for array in (getattr(batch, name) for name in ForwardBatch.__dataclass_fields__):
        assert array.dtype == np.int32
        assert array.flags.c_contiguous
    assert len(batch.sequences) == len(batch.slots) == len(batch.prefix_lengths) == count
    assert len(batch.tail_offsets) == count + 1
    assert len(set(zip(batch.sequences.tolist(), batch.slots.tolist(), strict=True))) == count
    _check_shared(batch, executor.block_size)
    assert ((batch.tokens >= 0) & (batch.tokens < executor.vocab_size)).all()
    for row in range(count):
        tail = batch.tails[batch.tail_offsets[row] : batch.tail_offsets[row + 1]].tolist()
        last = tail[-1] if tail else batch.prefix_lengths[row] - 1
        assert last == batch.slots[row], "a row must see itself last"


def _check_shared(batch: ForwardBatch, block_size: int) -> None:
    """Assert that no sequence writes to a block that another one holds too."""
    holders = Counter(batch.blocks.tolist())
    for sequence, slot in zip(batch.sequences.tolist(), batch.slots.tolist(), strict=True):
        block = int(batch.blocks[batch.block_offsets[sequence] + slot // block_size])
        assert holders[block] == 1, "a row writes to a shared block"
