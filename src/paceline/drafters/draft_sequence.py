"""One request's tokens in the KV cache of a draft model: extend, truncate, release."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.executors.base import Executor, ForwardBatch
from paceline.records import FloatArray, IntArray

_CHUNK_ROWS = 256  # rows of one forward while catching up with a prompt


class FreeBlocks:
    """The physical blocks of a draft executor that no request holds."""

    __slots__ = ("_free", "num_blocks")

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))

    def __len__(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int] | None:
        """Hand out ``count`` blocks, or ``None`` (and nothing) when fewer are free."""
        if count > len(self._free):
            return None
        return [self._free.pop() for _ in range(count)]

    def give_back(self, blocks: Sequence[int]) -> None:
        """Take blocks back."""
        self._free.extend(reversed(blocks))


class DraftSequence:
    """A chain of tokens and the blocks that hold its keys and values.

    ``cached``: the tokens whose keys and values are stored, slot = position. Rollback is :meth:`truncate` and
    nothing else. A stored slot behind ``len(cached)`` is garbage that the next :meth:`extend` overwrites.
    """

    __slots__ = ("_blocks", "_executor", "_free", "cached")

    def __init__(self, executor: Executor, free: FreeBlocks) -> None:
        self._executor = executor
        self._free = free
        self._blocks: list[int] = []
        self.cached: list[int] = []

    @property
    def num_blocks(self) -> int:
        """Blocks held."""
        return len(self._blocks)

    def reserve(self, length: int) -> bool:
        """Hold blocks for ``length`` tokens; return False, changing nothing, when too few are free."""
        size = self._executor.block_size
        taken = self._free.take(max(0, -(-length // size) - len(self._blocks)))
        if taken is None:
            return False
        self._blocks.extend(taken)
        return True

    def extend(self, tokens: Sequence[int], num_logits: int = 1) -> FloatArray:
        """Compute ``tokens`` behind the cached ones; return float32 [num_logits, V] of the last of them.

        Room for them must have been reserved. The array may be reused by the executor's next forward.
        """
        start = 0
        while len(tokens) - start > max(_CHUNK_ROWS, num_logits):
            self._forward(tokens[start : start + _CHUNK_ROWS], 0)
            start += _CHUNK_ROWS
        return self._forward(tokens[start:], num_logits)

    def truncate(self, length: int) -> None:
        """Forget all tokens from ``length`` on and give back the blocks that no longer hold any."""
        del self.cached[length:]
        needed = -(-len(self.cached) // self._executor.block_size)
        self._free.give_back(self._blocks[needed:])
        del self._blocks[needed:]

    def release(self) -> None:
        """Give back everything."""
        self.truncate(0)

    def _forward(self, tokens: Sequence[int], num_logits: int) -> FloatArray:
        count, length = len(tokens), len(self.cached)
        slots: IntArray = np.arange(length, length + count, dtype=np.int32)
        held = -(-(length + count) // self._executor.block_size)
        batch = ForwardBatch(
            tokens=np.array(tokens, dtype=np.int32),
            sequences=np.zeros(count, dtype=np.int32),
            slots=slots,
            prefix_lengths=slots + np.int32(1),
            tail_offsets=np.zeros(count + 1, dtype=np.int32),
            tails=np.empty(0, dtype=np.int32),
            block_offsets=np.array((0, held), dtype=np.int32),
            blocks=np.array(self._blocks[:held], dtype=np.int32),
            logit_rows=np.arange(count - num_logits, count, dtype=np.int32),
        )
        logits = self._executor.forward(batch)
        self.cached.extend(tokens)
        return logits
