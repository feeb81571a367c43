"""Physical KV blocks: which are free, and that none is lost or owned twice."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.errors import CacheFullError


class BlockPool:
    """Hands out block ids 0 … num_blocks - 1; the last block given back goes out first (it is warm)."""

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._is_free = bytearray(b"\x01" * num_blocks)

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Return ``count`` free blocks. Raises ``CacheFullError``, and then takes none."""
        if count > len(self._free):
            raise CacheFullError(
                f"{count} more KV blocks are needed but {len(self._free)} of {self._num_blocks} are free: "
                f"raise kv_cache_tokens or run fewer requests at once"
            )
        taken = [self._free.pop() for _ in range(count)]
        for block in taken:
            self._is_free[block] = 0
        return taken

    def give_back(self, block: int) -> None:
        """Return ``block``. Raises ``ValueError`` when it is free already (it would have two owners)."""
        if self._is_free[block]:
            raise ValueError(f"block {block} was given back twice")
        self._is_free[block] = 1
        self._free.append(block)

    def check(self, tables: Iterable[Iterable[int]]) -> None:
        """Raise ``AssertionError`` unless each block is either free or held by exactly one of ``tables``."""
        owners = [0] * self._num_blocks
        for table in tables:
            for block in table:
                owners[block] += 1
        for block in self._free:
            owners[block] += 1
        wrong = [block for block, count in enumerate(owners) if count != 1]
        if wrong:
            what = "lost" if owners[wrong[0]] == 0 else "owned twice"
            raise AssertionError(f"KV block {wrong[0]} is {what} ({len(wrong)} blocks are wrong)")
