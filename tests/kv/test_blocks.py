"""No block is lost and none is shared, whatever tables do; compaction keeps exactly the kept slots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import CacheFullError
from paceline.kv.block_pool import BlockPool
from paceline.kv.block_table import BlockTable
from paceline.records import IntArray

NUM_BLOCKS, BLOCK_SIZE = 10, 4


class Memory:
    """Physical slots that hold one number each."""

    def __init__(self) -> None:
        self.slots = np.zeros(NUM_BLOCKS * BLOCK_SIZE, dtype=np.int64)

    def move_slots(self, source: IntArray, destination: IntArray) -> None:
        for old, new in zip(source.tolist(), destination.tolist(), strict=True):
            self.slots[new] = self.slots[old]

    def place(self, table: BlockTable, slot: int) -> int:
        return table.blocks[slot // BLOCK_SIZE] * BLOCK_SIZE + slot % BLOCK_SIZE


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["reserve", "truncate"]), st.integers(0, 2), st.integers(0, 50)), max_size=40
)


@settings(max_examples=200, deadline=None)
@given(operations=OPERATIONS)
def test_any_order_of_operations_keeps_the_pool_whole(operations: list[tuple[str, int, int]]) -> None:
    pool = BlockPool(NUM_BLOCKS)
    tables = [BlockTable(pool, BLOCK_SIZE) for _ in range(3)]
    for name, which, slots in operations:
        table, before = tables[which], list(tables[which].blocks)
        if name == "truncate":
            table.truncate(slots)
            assert table.capacity <= max(0, -(-slots // BLOCK_SIZE) * BLOCK_SIZE)
            assert before[: len(table.blocks)] == table.blocks
        elif table.blocks_missing(slots) > pool.num_free:
            with pytest.raises(CacheFullError, match="raise kv_cache_tokens"):
                table.reserve(slots)
            assert table.blocks == before
        else:
            table.reserve(slots)
            assert table.capacity >= slots
        pool.check(table.blocks for table in tables)
    for table in tables:
        table.truncate(0)
    assert pool.num_free == NUM_BLOCKS


@settings(max_examples=100, deadline=None)
@given(start=st.integers(0, 12), kept=st.sets(st.integers(0, 15)).map(sorted), shuffle=st.randoms())
def test_compact_moves_a_path_behind_the_committed_tokens(
    start: int, kept: list[int], shuffle: object
) -> None:
    pool, memory = BlockPool(NUM_BLOCKS), Memory()
    shuffle.shuffle(pool._free)  # type: ignore[attr-defined]
    table = BlockTable(pool, BLOCK_SIZE)
    table.reserve(start + 16)
    for slot in range(start + 16):
        memory.slots[memory.place(table, slot)] = slot
    table.compact(memory, start, kept)
    expected = [*range(start), *(start + node for node in kept)]
    assert [memory.slots[memory.place(table, slot)] for slot in range(start + len(kept))] == expected


def test_a_chain_that_is_kept_moves_nothing() -> None:
    class Still:
        def move_slots(self, source: IntArray, destination: IntArray) -> None:
            raise AssertionError("moved")

    table = BlockTable(BlockPool(NUM_BLOCKS), BLOCK_SIZE)
    table.reserve(9)
    table.compact(Still(), 5, [0, 1, 2])


def test_check_finds_lost_and_shared_blocks() -> None:
    pool = BlockPool(4)
    blocks = pool.take(2)
    with pytest.raises(AssertionError, match="lost"):
        pool.check([blocks[:1]])
    with pytest.raises(AssertionError, match="owned twice"):
        pool.check([blocks, blocks[:1]])
    pool.give_back(blocks[0])
    with pytest.raises(ValueError, match="given back twice"):
        pool.give_back(blocks[0])
