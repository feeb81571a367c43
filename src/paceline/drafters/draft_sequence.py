"""One request's tokens in the KV cache of a draft model: extend, truncate, release."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.executors.base import Executor, ForwardBatch
from paceline.kv.block_pool import BlockPool
from paceline.kv.block_table import BlockTable
from paceline.records import FloatArray

_CHUNK_ROWS = 256  # rows of one forward while catching up with a prompt


class DraftSequence:
    """A chain of tokens and the blocks that hold its keys and values.

    ``cached``: the tokens whose keys and values are stored, slot = position. Rollback is :meth:`truncate` and
    nothing else. A stored slot behind ``len(cached)`` is garbage that the next :meth:`extend` overwrites.
    """

    __slots__ = ("_executor", "_pool", "cached", "table")

    def __init__(self, executor: Executor, pool: BlockPool) -> None:
        self._executor = executor
        self._pool = pool
        self.table = BlockTable(pool, executor.block_size)
        self.cached: list[int] = []

    def reserve(self, length: int) -> bool:
        """Hold blocks for ``length`` tokens; return False, changing nothing, when too few are free."""
        if self.table.blocks_missing(length) > self._pool.num_free:
            return False
        self.table.reserve(length)
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
        self.table.truncate(len(self.cached))

    def release(self) -> None:
        """Give back everything."""
        self.truncate(0)

    def _forward(self, tokens: Sequence[int], num_logits: int) -> FloatArray:
        count, length = len(tokens), len(self.cached)
        held = -(-(length + count) // self._executor.block_size)
        batch = ForwardBatch.chain(tokens, length, self.table.blocks[:held], num_logits)
        logits = self._executor.forward(batch)
        self.cached.extend(tokens)
        return logits
