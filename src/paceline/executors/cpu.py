"""The native CPU executor: weights repacked from a model file, one ragged forward pass in C++.

The instruction path (``amx``, ``avx512``, ``avx2``, ``portable``) is chosen by what the processor can do; the
environment variable ``PACELINE_ISA`` overrides it. Within one path, logits are row-invariant (design.md,
law 7).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal

import numpy as np

from paceline.config import check_int
from paceline.errors import ConfigError, nearest_name
from paceline.executors.base import ForwardBatch
from paceline.executors.native_model import native_model
from paceline.models.spec import ModelSpec, TensorSource
from paceline.native import _core
from paceline.records import FloatArray, IntArray

logger = logging.getLogger("paceline.executors")

CacheType = Literal["float16", "float32"]
_Arrays = tuple[IntArray, IntArray, IntArray, IntArray, IntArray, IntArray, IntArray, IntArray, IntArray]
ISA_VARIABLE = "PACELINE_ISA"
MAX_ROWS = 512
"""Rows of one native pass; longer batches are split, which changes no result."""


def available_paths() -> list[str]:
    """Return the instruction paths this machine can run, best first."""
    return list(_core.paths())


def chosen_path() -> str:
    """Return the instruction path in force. Raises ``ConfigError`` when the variable names no usable one."""
    wanted = os.environ.get(ISA_VARIABLE, "")
    paths = available_paths()
    if not wanted:
        return paths[0]
    if wanted not in paths:
        raise ConfigError(
            f"{ISA_VARIABLE}={wanted!r} is not an instruction path of this machine"
            f"{nearest_name(wanted, paths)}; use one of {', '.join(paths)} or unset it"
        )
    return wanted


def default_threads() -> int:
    """Return the number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _warn_of_too_many(threads: int, processors: int) -> None:
    """Say once that threads will wait for each other."""
    if threads > processors:
        logger.warning(
            "%d threads are more than the %d processors that this process may use: steps get slower, not "
            "faster; all processors are used when no number is given",
            threads,
            processors,
        )


class CpuExecutor:
    """Runs a model on the processor; see :class:`paceline.executors.base.Executor`."""

    block_size: int = _core.BLOCK_SLOTS

    def __init__(
        self,
        spec: ModelSpec,
        model: _core.Model,
        pool: _core.ThreadPool,
        *,
        num_layers: int,
        num_blocks: int,
        cache_type: CacheType = "float16",
    ) -> None:
        self.spec = spec
        self._model = model
        self._pool = pool
        self._cache_type: CacheType = cache_type
        self.path = chosen_path()
        try:
            self.decoder = _core.Decoder(
                model=model,
                pool=pool,
                path=self.path,
                layers=num_layers,
                num_blocks=num_blocks,
                half_cache=cache_type == "float16",
                max_rows=MAX_ROWS,
            )
        except MemoryError as error:
            slots = num_blocks * self.block_size
            raise ConfigError(
                f"there is no memory for a KV cache of {slots} tokens: ask for fewer"
            ) from error
        self._logits: FloatArray = np.empty((0, spec.vocab_size), dtype=np.float32)
        self._layer_ids: dict[tuple[int, ...], IntArray] = {}

    @classmethod
    def load(
        cls,
        spec: ModelSpec,
        source: TensorSource,
        *,
        num_blocks: int,
        num_threads: int | None = None,
        cache_type: CacheType = "float16",
        float32: bool = False,
    ) -> CpuExecutor:
        """Repack a model's tensors and make room for ``num_blocks`` KV blocks of ``block_size`` slots.

        ``num_threads`` defaults to the processors this process may use. ``float32`` keeps weights (and so
        activations) in float32: slow, the reference. Raises ``ConfigError`` for a bad thread count.
        """
        threads = default_threads() if num_threads is None else num_threads
        check_int("threads", threads, 1, 256)  # by the name that users gave it
        _warn_of_too_many(threads, default_threads())
        model = native_model(spec, source, float32=float32)
        return cls(
            spec,
            model,
            _core.ThreadPool(threads),
            num_layers=spec.num_layers,
            num_blocks=num_blocks,
            cache_type=cache_type,
        )

    @property
    def vocab_size(self) -> int:
        return self.spec.vocab_size

    @property
    def max_context(self) -> int:
        return self.spec.max_context

    @property
    def num_blocks(self) -> int:
        return int(self.decoder.num_blocks)

    @property
    def num_threads(self) -> int:
        return int(self._pool.size)

    @property
    def weight_bytes(self) -> int:
        """Bytes of repacked weights, all layers."""
        return int(self._model.weight_bytes)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the KV cache."""
        return int(self.decoder.cache_bytes)

    @property
    def pool(self) -> _core.ThreadPool:
        """The threads, for heads and measurements that use the same ones."""
        return self._pool

    @property
    def model(self) -> _core.Model:
        """The repacked weights, for heads that read the same embedding."""
        return self._model

    def forward(self, batch: ForwardBatch) -> FloatArray:
        """See :meth:`Executor.forward`. Batches longer than ``MAX_ROWS`` run as several passes."""
        logits = self._room_for(len(batch.logit_rows))
        if len(batch.tokens) <= MAX_ROWS:
            self.decoder.forward(*arrays_of(batch), logits)
            return logits
        done = 0
        for piece in pieces_of(batch):
            wanted = len(piece.logit_rows)
            self.decoder.forward(*arrays_of(piece), logits[done : done + wanted])
            done += wanted
        return logits

    def forward_with_states(
        self, batch: ForwardBatch, layers: Sequence[int]
    ) -> tuple[FloatArray, FloatArray]:
        """See :meth:`Executor.forward_with_states`. Id L is the number of layers *this* executor runs."""
        ids = self._checked_layers(layers)
        logits = self._room_for(len(batch.logit_rows))
        states = np.empty((len(batch.tokens), len(ids) * self.spec.hidden_size), dtype=np.float32)
        if len(batch.tokens) <= MAX_ROWS:
            self.decoder.forward_with_states(*arrays_of(batch), logits, ids, states)
            return logits, states
        row = wanted = 0
        for piece in pieces_of(batch):
            rows, logit_rows = len(piece.tokens), len(piece.logit_rows)
            self.decoder.forward_with_states(
                *arrays_of(piece), logits[wanted : wanted + logit_rows], ids, states[row : row + rows]
            )
            row, wanted = row + rows, wanted + logit_rows
        return logits, states

    def _checked_layers(self, layers: Sequence[int]) -> IntArray:
        known = self._layer_ids.get(tuple(layers))
        if known is not None:
            return known
        last = int(self.decoder.layers)
        if not layers or not all(0 <= layer <= last for layer in layers):
            raise ConfigError(
                f"state layers {list(layers)}: each must be 0 to {last} (the output of the last layer)"
            )
        return self._layer_ids.setdefault(tuple(layers), np.array(layers, dtype=np.int32))

    def _room_for(self, rows: int) -> FloatArray:
        if len(self._logits) < rows:
            self._logits = np.empty((rows, self.vocab_size), dtype=np.float32)
        return self._logits[:rows]

    def move_slots(self, source: IntArray, destination: IntArray) -> None:
        """See :meth:`Executor.move_slots`."""
        self.decoder.move_slots(source, destination)

    def first_layers(self, num_layers: int, num_blocks: int) -> CpuExecutor:
        """See :meth:`Executor.first_layers`. Raises ``ConfigError`` when there are not that many layers."""
        if not 1 <= num_layers <= self.spec.num_layers:
            raise ConfigError(f"num_layers must be 1 to {self.spec.num_layers}, not {num_layers}")
        return CpuExecutor(
            self.spec,
            self._model,
            self._pool,
            num_layers=num_layers,
            num_blocks=num_blocks,
            cache_type=self._cache_type,
        )


def arrays_of(batch: ForwardBatch) -> _Arrays:
    """Return the arrays of a batch in the order in which the native module takes them."""
    return (
        batch.tokens,
        batch.sequences,
        batch.slots,
        batch.prefix_lengths,
        batch.tail_offsets,
        batch.tails,
        batch.block_offsets,
        batch.blocks,
        batch.logit_rows,
    )


def pieces_of(batch: ForwardBatch) -> Iterator[ForwardBatch]:
    """Split a batch by rows. Ancestors come first, so each piece finds what it needs in the cache.

    Logit rows of a batch of several pieces must rise, which keeps their logits in the order asked for.
    """
    if len(batch.tokens) <= MAX_ROWS:
        yield batch
        return
    if np.any(np.diff(batch.logit_rows) < 0):
        raise ValueError("logit_rows of a batch longer than one pass must rise")
    for start in range(0, len(batch.tokens), MAX_ROWS):
        end = min(start + MAX_ROWS, len(batch.tokens))
        first, last = int(batch.tail_offsets[start]), int(batch.tail_offsets[end])
        wanted = batch.logit_rows[(batch.logit_rows >= start) & (batch.logit_rows < end)]
        yield ForwardBatch(
            tokens=batch.tokens[start:end],
            sequences=batch.sequences[start:end],
            slots=batch.slots[start:end],
            prefix_lengths=batch.prefix_lengths[start:end],
            tail_offsets=np.ascontiguousarray(batch.tail_offsets[start : end + 1] - first),
            tails=batch.tails[first:last],
            block_offsets=batch.block_offsets,
            blocks=batch.blocks,
            logit_rows=np.ascontiguousarray(wanted - start),
        )
