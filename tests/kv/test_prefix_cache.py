"""A key stands for one text and nothing else; blocks leave oldest first, ends before beginnings."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.kv.block_pool import BlockPool
from paceline.kv.block_table import BlockTable
from paceline.kv.prefix_cache import BlockKeys, PrefixCache

SIZE = 2


class Desk:
    """A pool whose blocks hold tokens, and requests that fill them as an engine does."""

    def __init__(self, num_blocks: int) -> None:
        self.pool = BlockPool(num_blocks)
        self.cache = PrefixCache(self.pool)
        self.content: dict[int, tuple[int, ...]] = {}
        self.tables: dict[int, BlockTable] = {}

    def run(self, number: int, tokens: list[int]) -> int:
        """Take what is known, compute the rest; return how many blocks were known."""
        table, keys, full = BlockTable(self.pool, SIZE), BlockKeys(tokens, SIZE), len(tokens) // SIZE
        shared = self.cache.match(keys.first(full))
        table.replace(0, shared)
        found = len(shared)
        for place, block in enumerate(table.blocks):
            assert self.content[block] == tuple(tokens[: (place + 1) * SIZE])
        if table.blocks_missing(len(tokens)) > self.pool.num_free:
            table.truncate(0)
            return 0
        table.reserve(len(tokens))
        for place in range(found, full):
            self.content[table.blocks[place]] = tuple(tokens[: (place + 1) * SIZE])
        self.cache.remember(table, keys.first(full), found, full)
        self.tables[number] = table
        return found

    def end(self, number: int) -> None:
        self.tables.pop(number).truncate(0)

    def check(self) -> None:
        self.pool.check(table.blocks for table in self.tables.values())
        self.cache.check()


def test_a_key_names_all_tokens_before_it() -> None:
    first, second = BlockKeys([1, 2, 3, 4, 5], SIZE), BlockKeys([1, 9, 3, 4, 5], SIZE)
    assert not set(first.first(2)) & set(second.first(2))
    growing = [1, 2, 3]
    keys = BlockKeys(growing, SIZE)
    assert len(keys.first(1)) == 1
    growing.extend([4, 5])
    assert keys.first(2) == first.first(2)


def test_a_second_text_shares_what_it_begins_with_and_nothing_else() -> None:
    desk = Desk(16)
    assert desk.run(0, [1, 2, 3, 4, 5, 6, 7]) == 0
    assert desk.run(1, [1, 2, 3, 4, 9, 9, 7]) == 2
    assert desk.run(2, [9, 2, 3, 4, 5, 6, 7]) == 0
    assert desk.tables[0].blocks[:2] == desk.tables[1].blocks[:2]
    desk.end(0)
    assert desk.run(3, [1, 2, 3, 4, 5, 6, 7, 8]) == 3
    desk.check()


def test_a_gap_ends_the_run() -> None:
    """Behind an evicted block its successors are known still, but of no use until it is computed again."""
    desk = Desk(16)
    desk.run(0, [1, 2, 3, 4, 5, 6])
    desk.end(0)
    keys = BlockKeys([1, 2, 3, 4, 5, 6], SIZE).first(3)
    middle = desk.cache._blocks[keys[1]]
    desk.pool._evict(middle)
    assert desk.run(1, [1, 2, 3, 4, 5, 6]) == 1
    desk.check()


def test_blocks_are_evicted_longest_idle_first_and_ends_before_beginnings() -> None:
    desk = Desk(8)
    desk.run(0, [1, 1, 1, 2, 1, 3])
    desk.run(1, [2, 1, 2, 2, 2, 3])
    desk.end(0)
    desk.end(1)
    assert desk.pool.num_idle == 6
    assert desk.pool.num_free == 8
    desk.run(2, [3] * 8)  # two free blocks and two evicted ones
    assert desk.run(3, [1, 1, 1, 2]) == 1  # its new block costs the other text its end
    desk.end(3)
    desk.end(2)
    assert desk.run(4, [2, 1, 2, 2, 2, 3]) == 2
    desk.check()


def test_a_text_that_is_used_again_stays() -> None:
    desk = Desk(6)
    desk.run(0, [1, 1, 1, 2])
    desk.end(0)
    desk.run(1, [2, 1, 2, 2])
    desk.end(1)
    assert desk.run(2, [1, 1, 1, 2]) == 2
    desk.end(2)
    desk.run(3, [3, 1, 3, 2, 3, 3, 3, 4])
    assert desk.run(4, [2, 1, 2, 2]) == 0
    desk.end(3)
    desk.check()


def test_two_that_computed_the_same_are_known_once() -> None:
    pool = BlockPool(8)
    cache = PrefixCache(pool)
    keys = BlockKeys([1, 2, 3, 4], SIZE).first(2)
    tables = [BlockTable(pool, SIZE) for _ in range(2)]
    for table in tables:
        table.reserve(4)
    for table in tables:
        cache.remember(table, keys, 0, 2)
    for table in tables:
        table.truncate(0)
    assert len(cache) == pool.num_idle == 2
    pool.check([])
    cache.check()


def test_clear_keeps_what_is_in_use() -> None:
    desk = Desk(8)
    desk.run(0, [1, 2, 3, 4])
    desk.run(1, [5, 6, 7, 8])
    desk.end(1)
    desk.cache.clear()
    assert desk.pool.num_idle == 0
    assert desk.run(2, [5, 6]) == 0
    assert desk.run(3, [1, 2]) == 1
    desk.check()


def test_the_pool_refuses_to_share_or_keep_what_has_no_content() -> None:
    pool = BlockPool(2)
    with pytest.raises(ValueError, match="no content"):
        pool.share(0)
    with pytest.raises(ValueError, match="not held"):
        pool.keep(0)
    (block,) = pool.take(1)
    pool.share(block)
    assert pool.is_shared(block)
    pool.give_back(block)
    pool.give_back(block)
    with pytest.raises(ValueError, match="twice"):
        pool.give_back(block)


def test_check_finds_a_holder_that_was_not_counted() -> None:
    pool = BlockPool(2)
    blocks = pool.take(1)
    pool.share(blocks[0])
    with pytest.raises(AssertionError, match="lost"):
        pool.check([blocks])
    pool.check([blocks, blocks])


@settings(max_examples=150, deadline=None)
@given(num_blocks=st.integers(4, 24), seed=st.integers(0, 10**6))
def test_whatever_comes_and_goes_no_block_shows_another_text(num_blocks: int, seed: int) -> None:
    rng = random.Random(seed)
    desk = Desk(num_blocks)
    for number in range(40):
        if desk.tables and rng.random() < 0.45:
            desk.end(rng.choice(list(desk.tables)))
        else:
            desk.run(number, [rng.randint(1, 2) for _ in range(rng.randint(1, 12))])
        if rng.random() < 0.03:
            desk.cache.clear()
        desk.check()
    for number in list(desk.tables):
        desk.end(number)
    assert desk.pool.num_free == num_blocks
    desk.check()
