"""Physical KV blocks: which are free, who holds the others, and that none is lost."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from paceline.errors import CacheFullError


class BlockPool:
    """Hands out block ids 0 … num_blocks - 1 and counts who holds each.

    A block is *free*, *held* by one or more tables, or *idle*: nobody holds it, but the prefix cache knows
    its content and may share it again. The free block given back last goes out first (it is warm); when none
    is left the block that has been idle longest is *evicted*: ``on_evict`` is told, and it goes out.
    """

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._holders = [0] * num_blocks
        self._is_kept = bytearray(num_blocks)
        self._idle: OrderedDict[int, None] = OrderedDict()  # longest idle first
        self.on_evict: Callable[[int], None] = _nothing

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that can be taken: the free ones and the idle ones."""
        return len(self._free) + len(self._idle)

    @property
    def num_idle(self) -> int:
        """Blocks that nobody holds and the prefix cache knows."""
        return len(self._idle)

    def take(self, count: int) -> list[int]:
        """Return ``count`` blocks, evicting idle ones if need be.

        Raises ``CacheFullError``, and then takes none.
        """
        if count > self.num_free:
            raise CacheFullError(
                f"{count} more KV blocks are needed but {self.num_free} of {self._num_blocks} are free: "
                f"raise kv_cache_tokens or run fewer requests at once"
            )
        while len(self._free) < count:
            self._evict(next(iter(self._idle)))
        taken = [self._free.pop() for _ in range(count)]
        for block in taken:
            self._holders[block] = 1
        return taken

    def share(self, block: int) -> None:
        """Hold a block that is held or idle once more. Raises ``ValueError`` for a free one."""
        if not self._holders[block]:
            if block not in self._idle:
                raise ValueError(f"block {block} is free: it has no content to share")
            del self._idle[block]
        self._holders[block] += 1

    def give_back(self, block: int) -> None:
        """Hold ``block`` once less. Raises ``ValueError`` when nobody holds it (it would have two owners)."""
        if not self._holders[block]:
            raise ValueError(f"block {block} was given back twice")
        self._holders[block] -= 1
        if self._holders[block]:
            return
        if self._is_kept[block]:
            self._idle[block] = None
        else:
            self._free.append(block)

    def is_shared(self, block: int) -> bool:
        """Whether more than one table holds ``block``."""
        return self._holders[block] > 1

    def keep(self, block: int) -> None:
        """Let a held block become idle, not free, once nobody holds it. Its content must not change then."""
        if not self._holders[block]:
            raise ValueError(f"block {block} is not held: its content is not known")
        self._is_kept[block] = 1

    def evict_idle(self) -> None:
        """Free every idle block. Held ones that are kept stay so."""
        while self._idle:
            self._evict(next(iter(self._idle)))

    def check(self, tables: Iterable[Iterable[int]]) -> None:
        """Raise ``AssertionError`` unless ``tables`` hold each block as often as is counted here, and each
        block that none of them holds is either free or idle.
        """
        holders, places = [0] * self._num_blocks, [0] * self._num_blocks
        for table in tables:
            for block in table:
                holders[block] += 1
        for block in (*self._free, *self._idle):
            places[block] += 1
        for block, (held, counted, spare) in enumerate(zip(holders, self._holders, places, strict=True)):
            if held > counted or spare > (held == 0):
                raise AssertionError(f"KV block {block} is owned twice: {held} hold it, {counted} counted")
            if held < counted or (held == 0 and spare == 0):
                raise AssertionError(f"KV block {block} is lost: {held} hold it, {counted} counted")
        assert all(self._is_kept[block] for block in self._idle), "an idle block holds nothing worth keeping"

    def _evict(self, block: int) -> None:
        del self._idle[block]
        self._is_kept[block] = 0
        self._free.append(block)
        self.on_evict(block)


def _nothing(_block: int) -> None:
    pass
