"""Forwards that are run once: logits and hidden states remembered by the tokens they follow.

Twenty thousand draws of three tokens visit a few dozen different prefixes. On an executor whose rows depend
on their tokens and weights only (design.md, law 7) one forward for each of them tells all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np

from paceline.executors.base import Executor, ForwardBatch
from paceline.kv.block_pool import BlockPool
from paceline.kv.block_table import BlockTable
from paceline.records import FloatArray, IntArray

Path = tuple[int, ...]
MEMO_BYTES = 192 * 2**20
"""Bytes of logits kept: a thousand rows of a vocabulary of 49,152 tokens."""
_UNWRITTEN = -1


def _shared(one: Path, other: Path) -> int:
    """Return the length of the common prefix."""
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


class ArrayMemo:
    """Arrays by key; the ones not used for longest go when there are too many bytes."""

    def __init__(self, max_bytes: int = MEMO_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._arrays: OrderedDict[object, FloatArray] = OrderedDict()

    def get(self, key: object) -> FloatArray | None:
        array = self._arrays.get(key)
        if array is not None:
            self._arrays.move_to_end(key)
        return array

    def put(self, key: object, array: FloatArray) -> None:
        """Keep ``array``, which nobody may change from now on."""
        array.flags.writeable = False
        self._arrays[key] = array
        self._bytes += array.nbytes
        while self._bytes > self._max_bytes and len(self._arrays) > 1:
            self._bytes -= self._arrays.popitem(last=False)[1].nbytes


class PathReader:
    """Logits and states behind a path of tokens, on blocks of an executor that nobody else uses meanwhile.

    ``layers``: whose entering states are wanted with each token. A path shares what it can with the last one.
    """

    def __init__(self, executor: Executor, layers: Sequence[int] = ()) -> None:
        self._executor = executor
        self._layers = tuple(layers)
        self._table = BlockTable(BlockPool(executor.num_blocks), executor.block_size)
        self._cached: Path = ()
        self._logits = ArrayMemo()
        self._states = ArrayMemo()

    def logits(self, path: Path) -> FloatArray:
        """Return float32 [V] behind ``path``; read-only. Raises ``CacheFullError`` for a path too long."""
        row = self._logits.get(path)
        if row is None:
            self._forward(path)
            row = self._logits.get(path)
        assert row is not None
        return row

    def state(self, path: Path) -> FloatArray:
        """Return float32 [W]: the states of the last token of ``path``; read-only."""
        row = self._states.get(path)
        if row is None:
            self._forward(path)
            row = self._states.get(path)
        assert row is not None
        return row

    def _forward(self, path: Path) -> None:
        """Compute what of ``path`` is not cached, its last token in any case."""
        known = min(_shared(self._cached, path), len(path) - 1)
        self._table.reserve(len(path))
        # An earlier, longer path may have left more blocks than this one needs; they do no harm.
        batch = ForwardBatch.chain(path[known:], known, self._table.blocks, 1)
        if self._layers:
            logits, states = self._executor.forward_with_states(batch, self._layers)
            for place in range(known, len(path)):
                self._states.put(path[: place + 1], states[place - known].copy())
        else:
            logits = self._executor.forward(batch)
        self._logits.put(path, logits[0].copy())
        self._cached = path


class MemoExecutor:
    """An :class:`~paceline.executors.base.Executor` that runs each path of tokens once.

    It keeps the tokens that were written to its slots, as an executor keeps keys and values, so that what a
    row sees follows from slots and block tables alone: a cache mistake of its user's shows.
    """

    def __init__(self, executor: Executor, num_blocks: int) -> None:
        self._executor = executor
        self._num_blocks = num_blocks
        self._tokens = np.full(num_blocks * executor.block_size, _UNWRITTEN, dtype=np.int32)
        self._readers: dict[tuple[int, ...], PathReader] = {}
        self._batches = ArrayMemo()

    @property
    def vocab_size(self) -> int:
        return self._executor.vocab_size

    @property
    def max_context(self) -> int:
        return self._executor.max_context

    @property
    def block_size(self) -> int:
        return self._executor.block_size

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    def forward(self, batch: ForwardBatch) -> FloatArray:
        """See :meth:`Executor.forward`. The array is read-only."""
        return self._logits(self._paths(batch, batch.logit_rows.tolist()), ())

    def forward_with_states(
        self, batch: ForwardBatch, layers: Sequence[int]
    ) -> tuple[FloatArray, FloatArray]:
        """See :meth:`Executor.forward_with_states`."""
        wanted = tuple(layers)
        paths = self._paths(batch, range(len(batch.tokens)))
        reader = self._reader(wanted)
        states = np.stack([reader.state(path) for path in paths])
        return self._logits([paths[row] for row in batch.logit_rows.tolist()], wanted), states

    def move_slots(self, source: IntArray, destination: IntArray) -> None:
        """See :meth:`Executor.move_slots`."""
        for old, new in zip(source.tolist(), destination.tolist(), strict=True):
            self._tokens[new] = self._tokens[old]

    def first_layers(self, num_layers: int, num_blocks: int) -> MemoExecutor:
        """See :meth:`Executor.first_layers`."""
        blocks = self._executor.num_blocks
        return MemoExecutor(self._executor.first_layers(num_layers, blocks), num_blocks)

    def _reader(self, layers: tuple[int, ...]) -> PathReader:
        """Return the reader of these layers. Readers write to the same blocks, so only one may know them."""
        if layers not in self._readers:
            self._readers = {layers: PathReader(self._executor, layers)}
        return self._readers[layers]

    def _logits(self, paths: list[Path], layers: tuple[int, ...]) -> FloatArray:
        key = tuple(paths)
        answer = self._batches.get(key)
        if answer is None:
            reader = self._reader(layers)
            answer = np.zeros((len(key), self.vocab_size), dtype=np.float32)
            for place, path in enumerate(key):
                answer[place] = reader.logits(path)
            self._batches.put(key, answer)
        return answer

    def _paths(self, batch: ForwardBatch, rows: Iterable[int]) -> list[Path]:
        """Write the tokens of all rows; return what each of ``rows`` sees, itself last."""
        seen = [self._write(batch, sequence) for sequence in range(len(batch.block_offsets) - 1)]
        sequences, lengths = batch.sequences.tolist(), batch.prefix_lengths.tolist()
        offsets, tails = batch.tail_offsets.tolist(), batch.tails.tolist()
        paths = []
        for row in rows:
            tokens = seen[sequences[row]]
            tail = (tokens[slot] for slot in tails[offsets[row] : offsets[row + 1]])
            path = (*tokens[: lengths[row]], *tail)
            if _UNWRITTEN in path:
                raise AssertionError(f"row {row} reads a slot that was never written")
            paths.append(path)
        return paths

    def _write(self, batch: ForwardBatch, sequence: int) -> list[int]:
        """Write the tokens of one sequence; return what its logical slots hold."""
        size = self.block_size
        blocks = batch.blocks[batch.block_offsets[sequence] : batch.block_offsets[sequence + 1]]
        mine = batch.sequences == sequence
        slots = batch.slots[mine]
        self._tokens[blocks[slots // size] * size + slots % size] = batch.tokens[mine]
        held: list[int] = self._tokens.reshape(-1, size)[blocks].reshape(-1).tolist()
        return held
