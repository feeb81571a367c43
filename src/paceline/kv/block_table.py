"""One sequence's map from logical slots to physical blocks, and the only way its cache shrinks.

``reserve`` grows the table, ``compact`` moves the accepted path of a draft behind the committed tokens,
``truncate`` gives back what lies behind, and ``replace`` puts shared blocks of the prefix cache at its end.
Nothing else changes which blocks a request holds (design.md, law 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from paceline.kv.block_pool import BlockPool
from paceline.records import IntArray


class SlotMover(Protocol):
    """What a table needs of an executor."""

    def move_slots(self, source: IntArray, destination: IntArray) -> None: ...


class BlockTable:
    """The blocks of one sequence, in order of their slots."""

    __slots__ = ("_block_size", "_pool", "blocks")

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self._pool = pool
        self._block_size = block_size
        self.blocks: list[int] = []

    @property
    def block_size(self) -> int:
        """Slots per block."""
        return self._block_size

    @property
    def capacity(self) -> int:
        """Slots that have a block."""
        return len(self.blocks) * self._block_size

    def blocks_missing(self, num_slots: int) -> int:
        """Return how many more blocks ``num_slots`` slots need."""
        return max(0, -(-num_slots // self._block_size) - len(self.blocks))

    def reserve(self, num_slots: int) -> None:
        """Hold blocks for slots 0 … num_slots - 1. Raises ``CacheFullError``, and then nothing changed."""
        self.blocks.extend(self._pool.take(self.blocks_missing(num_slots)))

    def replace(self, start: int, shared: Sequence[int]) -> None:
        """Hold ``shared`` blocks as numbers ``start`` …, and give back what the table had from there on."""
        for block in shared:
            self._pool.share(block)
        self.truncate(start * self._block_size)
        self.blocks.extend(shared)

    def truncate(self, num_slots: int) -> None:
        """Give back every block that holds no slot below ``num_slots``."""
        keep = -(-num_slots // self._block_size)
        while len(self.blocks) > keep:
            self._pool.give_back(self.blocks.pop())

    def compact(self, mover: SlotMover, start: int, kept: Sequence[int]) -> None:
        """Move the keys and values of slots ``start + kept[i]`` to ``start + i``.

        ``kept`` ascends strictly (a path through a draft), so no slot is overwritten before it was moved.
        """
        moves = [(start + node, start + i) for i, node in enumerate(kept) if node != i]
        if moves:
            source, destination = zip(*moves, strict=True)
            mover.move_slots(self._physical(source), self._physical(destination))

    def _physical(self, slots: Sequence[int]) -> IntArray:
        size = self._block_size
        return np.array([self.blocks[slot // size] * size + slot % size for slot in slots], dtype=np.int32)
