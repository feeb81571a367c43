"""Capture: run the target over prompt and response and keep its states, computed by the executor that serves.

Several sequences share one pass of up to 512 rows; which ones does not matter, since a row's states depend on
its own tokens only (design.md, law 7). Longer sequences run in chunks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

import numpy as np

from paceline.errors import ConfigError
from paceline.executors.base import ForwardBatch
from paceline.models.spec import ModelSpec
from paceline.records import FloatArray, IntArray
from paceline.train.captured import (
    ARRAYS,
    FORM_FILE,
    Bfloat16Bits,
    CapturedData,
    CaptureForm,
    Shard,
    array_path,
    count_shards,
    read_form,
    shard_path,
    to_bfloat16,
)
from paceline.train.rows import Row
from paceline.train.storage import PART, write_json

MAX_ROWS = 512
DEFAULT_SHARD_BYTES = 1 << 30
_TOKEN_BYTES = 4
_SEQUENCE_BYTES = 16


class StateExecutor(Protocol):
    """What capture needs of an executor."""

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def path(self) -> str: ...

    @property
    def block_size(self) -> int: ...

    @property
    def num_blocks(self) -> int: ...

    def forward_with_states(
        self, batch: ForwardBatch, layers: Sequence[int]
    ) -> tuple[FloatArray, FloatArray]: ...


@dataclass(frozen=True, slots=True)
class CaptureResult:
    """``num_left_out``: rows behind the point where ``max_disk`` was reached."""

    data: CapturedData
    num_left_out: int


def capture_layers(spec: ModelSpec, state_layers: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Return the layers to capture: those the head reads (2, L // 2, L - 3 unless given), then L itself.

    The state of L (the last layer's output before the final norm) gives the target's law when multiplied with
    its head. Raises ``ConfigError`` for a target that is too shallow.
    """
    last = spec.num_layers
    wanted = state_layers or (2, last // 2, last - 3)
    if state_layers is None and last < 6:
        raise ConfigError(
            f"{spec.name} has {last} layers; the layers 2, L // 2 and L - 3 need 6: name others (--layers)"
        )
    if min(wanted) < 0 or max(wanted) > last:
        raise ConfigError(f"layers {wanted}: {spec.name} has the ids 0 to {last} (its last layer's output)")
    return (*wanted, last)


def sequence_bytes(num_tokens: int, form: CaptureForm) -> int:
    """Return the bytes on disk of one captured sequence."""
    return num_tokens * (2 * form.width + _TOKEN_BYTES) + _SEQUENCE_BYTES


def capture(
    executor: StateExecutor,
    rows: Iterable[Row],
    out: Path,
    *,
    layers: tuple[int, ...],
    target: str,
    shard_bytes: int = DEFAULT_SHARD_BYTES,
    max_disk: int | None = None,
    progress: Callable[[int], None] = lambda tokens: None,
) -> CaptureResult:
    """Write the states of ``rows`` to ``out``; a run that was interrupted goes on after its last whole shard.

    ``layers``: ids as in ``forward_with_states``. ``target``: what identifies the weights. ``shard_bytes``:
    at most, at least one sequence. ``max_disk``: stop before ``out`` takes more bytes than this.
    ``progress``: called with the tokens that are done since the last call, those found on disk first.

    Raises ``ConfigError`` when ``out`` holds states of another kind or of other rows, or when a sequence does
    not fit the executor's cache; ``OSError`` when the disk is full, and then no half-written shard stays.
    """
    form = CaptureForm(target, tuple(layers), executor.spec.hidden_size, executor.path)
    _prepare(out, form)
    done = [Shard(out, number, form) for number in range(count_shards(out))]
    used = sum(sequence_bytes(int(n), form) for shard in done for n in shard.lengths)
    source = iter(rows)
    _skip(source, done, progress)
    number = len(done)
    pending = next(source, None)
    while pending is not None and (max_disk is None or _fits(pending, form, used, max_disk)):
        room = shard_bytes if max_disk is None else min(shard_bytes, max_disk - used)
        with ShardWriter(out, number, form) as writer:
            pending = _fill(executor, pending, source, writer, room, progress)
            used += writer.num_bytes
            writer.finish()
        number += 1
    left_out = 0 if pending is None else 1 + sum(1 for _ in source)
    if number == 0:
        raise ConfigError(f"nothing was captured: there are no rows, or max_disk={max_disk} holds none")
    return CaptureResult(CapturedData(out), left_out)


def _fits(row: Row, form: CaptureForm, used: int, max_disk: int) -> bool:
    return used + sequence_bytes(len(row.tokens), form) <= max_disk


def _prepare(out: Path, form: CaptureForm) -> None:
    """Make the folder or check that it holds the same kind of states; remove what was left half-written."""
    out.mkdir(parents=True, exist_ok=True)
    if (out / FORM_FILE).is_file():
        found = read_form(out)
        if found != form:
            raise ConfigError(f"{out} holds states of {found}, not of {form}: choose another folder")
    else:
        write_json(out / FORM_FILE, asdict(form))
    whole = count_shards(out)
    for path in [p for ending in set(ARRAYS.values()) for p in out.glob(f"*-????.{ending}")]:
        if int(path.stem[-4:]) >= whole:
            path.unlink()
    for path in [*out.glob(f"*{PART}"), *out.glob("shard-????.json")]:
        if path.name.endswith(PART) or int(path.stem[-4:]) >= whole:
            path.unlink()


def _skip(rows: Iterator[Row], shards: Sequence[Shard], progress: Callable[[int], None]) -> None:
    """Step over the rows that are on disk. Raises ``ConfigError`` when they are not the same."""
    for shard in shards:
        for wanted, length in zip(shard.facts["ids"], shard.lengths.tolist(), strict=True):
            row = next(rows, None)
            if row is None or row.id != wanted or len(row.tokens) != length:
                raise ConfigError(
                    f"{shard.folder} holds other rows than those given (row {wanted!r} of shard "
                    f"{shard.number}): delete the folder to capture anew"
                )
            progress(length)


def _fill(
    executor: StateExecutor,
    row: Row | None,
    source: Iterator[Row],
    writer: ShardWriter,
    room: int,
    progress: Callable[[int], None],
) -> Row | None:
    """Capture rows until ``room`` bytes are used; return the first row that did not fit."""
    batch: list[Row] = []
    planned = 0
    while row is not None:
        size = sequence_bytes(len(row.tokens), writer.form)
        if planned and planned + size > room:
            break
        planned += size
        if batch and not _is_one_pass([*batch, row], executor):
            _run(executor, batch, writer, progress)
            batch = []
        batch.append(row)
        row = next(source, None)
    _run(executor, batch, writer, progress)
    return row


def _is_one_pass(rows: Sequence[Row], executor: StateExecutor) -> bool:
    """Return whether the sequences fit one pass and the cache."""
    blocks = sum(-(-len(row.tokens) // executor.block_size) for row in rows)
    return sum(len(row.tokens) for row in rows) <= MAX_ROWS and blocks <= executor.num_blocks


def _run(
    executor: StateExecutor, batch: list[Row], writer: ShardWriter, progress: Callable[[int], None]
) -> None:
    """Capture one batch and write it."""
    layers, width = writer.form.layers, writer.form.width
    for piece in capture_passes([row.tokens for row in batch], executor.block_size, executor.num_blocks):
        _, states = executor.forward_with_states(piece, layers)
        if not np.isfinite(states).all():
            ids = ", ".join(row.id for row in batch)
            raise ConfigError(f"the target's states are not finite in one of the rows {ids}: leave it out")
        writer.add_states(to_bfloat16(states.reshape(len(piece.tokens), width)))
    for row in batch:
        writer.add_sequence(row)
    progress(sum(len(row.tokens) for row in batch))


def capture_passes(
    sequences: Sequence[Sequence[int]], block_size: int, num_blocks: int
) -> Iterator[ForwardBatch]:
    """Yield the passes over ``sequences``, at most 512 rows each; the rows of all passes follow their order.

    Raises ``ConfigError`` when the cache has fewer blocks than they need.
    """
    blocks = [-(-len(tokens) // block_size) for tokens in sequences]
    if sum(blocks) > num_blocks:
        raise ConfigError(
            f"{sum(map(len, sequences))} tokens need {sum(blocks)} KV blocks, but the cache has "
            f"{num_blocks}: enlarge it or leave long rows out"
        )
    block_offsets = np.cumsum([0, *blocks], dtype=np.int32)
    tokens = np.concatenate([np.asarray(ids, dtype=np.int32) for ids in sequences])
    owners = np.repeat(np.arange(len(sequences), dtype=np.int32), [len(ids) for ids in sequences])
    slots = np.concatenate([np.arange(len(ids), dtype=np.int32) for ids in sequences])
    for start in range(0, len(tokens), MAX_ROWS):
        part = slice(start, start + MAX_ROWS)
        yield _chain_rows(tokens[part], owners[part], slots[part], block_offsets)


def _chain_rows(tokens: IntArray, owners: IntArray, slots: IntArray, block_offsets: IntArray) -> ForwardBatch:
    return ForwardBatch(
        tokens=tokens,
        sequences=owners,
        slots=slots,
        prefix_lengths=slots + np.int32(1),
        tail_offsets=np.zeros(len(tokens) + 1, dtype=np.int32),
        tails=np.empty(0, dtype=np.int32),
        block_offsets=block_offsets,
        blocks=np.arange(block_offsets[-1], dtype=np.int32),
        logit_rows=np.empty(0, dtype=np.int32),
    )


class ShardWriter:
    """Writes one shard under temporary names; :meth:`finish` puts it in place. Left by an error: no trace."""

    def __init__(self, folder: Path, number: int, form: CaptureForm) -> None:
        self.form = form
        self.num_bytes = 0
        self._folder = folder
        self._number = number
        self._path = array_path(folder, number, "states")
        self._part = self._path.with_name(self._path.name + PART)
        self._digest = hashlib.sha256()
        self._rows: list[Row] = []
        self._file: IO[bytes] = self._part.open("wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)

    def add_states(self, states: Bfloat16Bits) -> None:
        """Append states [n, W]."""
        data = np.ascontiguousarray(states).data
        self._file.write(data)
        self._digest.update(data)

    def add_sequence(self, row: Row) -> None:
        """Note a sequence whose states have been appended."""
        self._rows.append(row)
        self.num_bytes += sequence_bytes(len(row.tokens), self.form)

    def finish(self) -> None:
        """Put the shard in place: arrays first, then its facts, which make it count."""
        digests = {"states": self._digest.hexdigest()}
        lengths = [len(row.tokens) for row in self._rows]
        arrays = {
            "tokens": np.concatenate([np.asarray(row.tokens, dtype=np.int32) for row in self._rows]),
            "offsets": np.cumsum([0, *lengths], dtype=np.int64),
            "response_starts": np.asarray([len(row.prompt) for row in self._rows], dtype=np.int64),
        }
        self._file.close()
        self._part.replace(self._path)
        for name, array in arrays.items():
            digests[name] = write_array(array_path(self._folder, self._number, name), array)
        facts = {
            "num_rows": sum(lengths),
            "ids": [row.id for row in self._rows],
            "sources": [row.source for row in self._rows],
            "sha256": digests,
        }
        write_json(shard_path(self._folder, self._number), facts)


def write_array(path: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.signedinteger]]) -> str:
    """Write an array's bytes, whole or not at all; return their SHA-256."""
    from paceline.train.storage import whole_file

    data = array.tobytes()
    with whole_file(path) as file:
        file.write(data)
    return hashlib.sha256(data).hexdigest()
