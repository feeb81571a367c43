"""One request's pairs in the KV cache of a draft head.

Pair i is the target's hidden state of token i with the embedding of token i + 1; it is stored in slot i. A
pair is complete once both are committed, so a stored pair is never taken back: rollback only frees the slots
behind that drafted nodes used. States wait until their pair is computed (catch-up): in the same pass as the
next draft, or in chunks when many have come together.

Where the target took the beginning of the prompt from its prefix cache, the states of those tokens never
come. Their pairs are then taken from the head's own prefix cache. If it lacks one, the sequence begins with
the first state that did come, in slot 0: rotary positions count from there, which leaves every distance
between pairs as it is (docs/scheduling.md has what that costs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from paceline.executors.base import ForwardBatch
from paceline.kv.block_pool import BlockPool
from paceline.kv.block_table import BlockTable
from paceline.kv.prefix_cache import BlockKeys, PrefixCache
from paceline.records import FloatArray, HiddenStates

if TYPE_CHECKING:
    from paceline.executors.eagle3 import Eagle3Executor

CHUNK_ROWS = 256  # rows of one pass while catching up


@dataclass(frozen=True, slots=True)
class Eagle3Head:
    """A loaded head. ``pool``: the blocks of its KV cache, shared by all drafters that use it. ``prefix``:
    what is known of their content.
    """

    name: str
    executor: Eagle3Executor
    pool: BlockPool
    prefix: PrefixCache = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", PrefixCache(self.pool))


class HeadSequence:
    """``tokens``: all committed ones. ``first``: position of the pair in slot 0. ``cached``: pairs whose keys
    and values are stored. ``num_states``: states that came, from ``first`` on.
    """

    __slots__ = (
        "_executor",
        "_keys",
        "_num_remembered",
        "_pool",
        "_prefix",
        "_waiting",
        "cached",
        "first",
        "num_states",
        "table",
        "tokens",
    )

    def __init__(self, head: Eagle3Head, prompt: Sequence[int]) -> None:
        self._executor = head.executor
        self._pool = head.pool
        self._prefix = head.prefix
        self._num_remembered = 0  # leading blocks that the prefix cache was told of
        self._waiting: list[FloatArray] = []  # states of pairs cached … num_states - 1
        self.table = BlockTable(head.pool, head.executor.block_size)
        self.tokens = list(prompt)
        self._keys = BlockKeys(self.tokens, head.executor.block_size, skip=1)
        self.first = 0
        self.cached = 0
        self.num_states = 0

    @property
    def is_complete(self) -> bool:
        """Whether the states of all tokens but the last have come, so that the next one can be drafted."""
        return self.num_states >= self.num_pairs >= 1

    @property
    def num_pairs(self) -> int:
        """Pairs behind the committed tokens: the last token has no successor yet."""
        return len(self.tokens) - 1 - self.first

    def observe(self, states: HiddenStates | None, committed: Sequence[int]) -> None:
        """Take what a step told; states that are known already (after a preemption) are skipped."""
        self.tokens.extend(committed)
        if len(self.tokens) - 1 > self._executor.spec.max_context:
            self.release()  # nothing can be drafted any more
            return
        if states is not None:
            self._take(states)
        while min(self.num_states, self.num_pairs) - self.cached > CHUNK_ROWS:
            if not self._reserve(self.cached + CHUNK_ROWS):
                return
            waiting, batch = self._next_pairs(CHUNK_ROWS, 0)
            self._executor.catch_up(batch, waiting)
            self._store(CHUNK_ROWS)

    def open(self, spare: int) -> tuple[FloatArray, ForwardBatch] | None:
        """Return the waiting states and the pass that computes their pairs, with ``spare`` slots behind.

        ``None`` when too few blocks are free, or when no pair is new since the last draft. Call
        :meth:`close` once that pass is computed.
        """
        length = self.num_pairs
        if self.cached >= length or not self._reserve(length + spare):
            return None
        return self._next_pairs(length - self.cached, 1)

    def close(self) -> None:
        """Count the pairs of :meth:`open` as stored and free the slots behind them."""
        self._store(self.num_pairs - self.cached)
        self.table.truncate(self.cached)

    def release(self) -> None:
        """Give back everything."""
        self._waiting.clear()
        self.table.truncate(0)
        self.first = self.cached = self.num_states = self._num_remembered = 0

    def states_wanted_from(self, limit: int) -> int:
        """See :class:`~paceline.drafters.base.RememberingSession`."""
        if self.num_states:
            return min(limit, self.first + self.num_states)
        size = self._executor.block_size
        stop = limit // size
        return len(self._prefix.match(self._keys.first(stop)[:stop])) * size

    def step(self, token: int, depth: int, num_logits: int = 1) -> ForwardBatch:
        """Return the pass of drafted ``token`` at ``depth`` (0: right behind the last pair)."""
        return ForwardBatch.chain([token], self.num_pairs + depth, self.table.blocks, num_logits)

    def _take(self, states: HiddenStates) -> None:
        if states.start > self.first + self.num_states:
            self._begin(states.start)
        known = self.first + self.num_states - states.start
        if known < len(states):
            self._waiting.append(states.rows[known:])
            self.num_states += len(states) - known

    def _begin(self, start: int) -> None:
        """Hold the pairs before ``start`` from the prefix cache, or do without them all."""
        self.release()
        size = self._executor.block_size
        stop = start // size
        found = self._prefix.match(self._keys.first(stop)[:stop])
        if len(found) * size == start:
            self.table.replace(0, found)
            self.cached = self.num_states = start
            self._num_remembered = stop
        else:
            self.first = start

    def _reserve(self, length: int) -> bool:
        if self.table.blocks_missing(length) > self._pool.num_free:
            return False
        self.table.reserve(length)
        return True

    def _next_pairs(self, count: int, num_logits: int) -> tuple[FloatArray, ForwardBatch]:
        if len(self._waiting) > 1:
            self._waiting = [np.concatenate(self._waiting)]
        start = self.cached
        begin = self.first + start + 1
        tokens = self.tokens[begin : begin + count]
        batch = ForwardBatch.chain(tokens, start, self.table.blocks, num_logits)
        return self._waiting[0][:count], batch

    def _store(self, count: int) -> None:
        """Count ``count`` more pairs as stored and let go of their states."""
        self.cached += count
        if self.first == 0:
            full = self.cached // self._executor.block_size
            self._prefix.remember(self.table, self._keys.first(full), self._num_remembered, full)
            self._num_remembered = full
        left = self._waiting[0][count:]
        self._waiting = [left.copy()] if len(left) else []
