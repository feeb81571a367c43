"""Blocks whose tokens are known by name, so that no prompt is computed twice.

The *key* of a full block is a hash of its tokens and of the key of the block before it: it names everything
that its keys and values depend on. Only full blocks of committed, computed tokens get one (design.md, law 5).
Nobody writes to such a block any more: a request writes behind its computed length alone, so sharing needs no
copies. What a shared block holds is bit for bit what the request would have computed (law 7).

A key is found by its whole 256-bit BLAKE2b hash. Two different texts with one key are not to be feared, not
even from somebody who tries: finding them is as hard as breaking the hash.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b

from paceline.kv.block_pool import BlockPool
from paceline.kv.block_table import BlockTable


class BlockKeys:
    """The keys of the full blocks of one list of tokens, which only grows; each is computed once.

    ``skip``: tokens before the first block, which every key depends on too (a draft head's slot i belongs to
    token i + 1).
    """

    __slots__ = ("_block_size", "_keys", "_skip", "_tokens")

    def __init__(self, tokens: Sequence[int], block_size: int, skip: int = 0) -> None:
        self._tokens = tokens
        self._block_size = block_size
        self._skip = skip
        self._keys: list[bytes] = []

    def first(self, count: int) -> list[bytes]:
        """Return the keys of at least the first ``count`` blocks, which must be full."""
        size = self._block_size
        while len(self._keys) < count:
            start = self._skip + len(self._keys) * size
            before = self._keys[-1] if self._keys else array("i", self._tokens[: self._skip]).tobytes()
            content = array("i", self._tokens[start : start + size]).tobytes()
            self._keys.append(blake2b(before + content, digest_size=32).digest())
        return self._keys


class PrefixCache:
    """Which block holds which content. Blocks that nobody holds leave it as the pool needs them, longest idle
    first.

    A table gives its blocks back last one first, so of an idle text the end is evicted before the beginning.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._blocks: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}
        pool.on_evict = self._forget

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, keys: Sequence[bytes]) -> list[int]:
        """Return the blocks of the leading ``keys`` that are known, up to the first one that is not."""
        found: list[int] = []
        for key in keys:
            block = self._blocks.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def remember(self, table: BlockTable, keys: Sequence[bytes], start: int, stop: int) -> None:
        """Learn the content of the blocks ``start`` … ``stop`` - 1 of ``table``: full, committed, computed.

        A text that two requests computed at once is known by the first one's blocks.
        """
        for key, block in zip(keys[start:stop], table.blocks[start:stop], strict=True):
            if key not in self._blocks and block not in self._keys:
                self._blocks[key] = block
                self._keys[block] = key
                self._pool.keep(block)

    def clear(self) -> None:
        """Forget every block that no request holds."""
        self._pool.evict_idle()

    def check(self) -> None:
        """Raise ``AssertionError`` unless keys and blocks belong to each other one to one."""
        assert {block: key for key, block in self._blocks.items()} == self._keys, "a block has two keys"

    def _forget(self, block: int) -> None:
        del self._blocks[self._keys.pop(block)]
