"""Captured sequences on disk: tokens and the target's states, read through memory maps.

A folder holds ``capture.json`` (what was captured, see :class:`CaptureForm`) and numbered shards. Shard 0 is

    states-0000.u16            bfloat16 bits [rows, W], W = number of layers * Ht
    tokens-0000.i32            int32 [rows]
    offsets-0000.i64           int64 [sequences + 1]: first row of each sequence within the shard
    response_starts-0000.i64   int64 [sequences]: index in its sequence of the first response token
    shard-0000.json            ids, sources, sizes and checksums; written last, so that a shard without it is
                               one that was interrupted
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.errors import ConfigError
from paceline.records import FloatArray, IntArray
from paceline.train.storage import read_json, sha256_of

Bfloat16Bits = npt.NDArray[np.uint16]
FORM_FILE = "capture.json"
ARRAYS = {"states": "u16", "tokens": "i32", "offsets": "i64", "response_starts": "i64"}
"""Arrays of a shard and the endings of their files."""


@dataclass(frozen=True, slots=True)
class CaptureForm:
    """What a folder's states are: of which target (``target``: digest of its weights and spec), the inputs of
    which ``layers`` (the number of layers stands for the output of the last one), ``hidden_size`` Ht each.
    ``instruction_path``: kernels that computed them.
    """

    target: str
    layers: tuple[int, ...]
    hidden_size: int
    instruction_path: str

    @property
    def width(self) -> int:
        return len(self.layers) * self.hidden_size


@dataclass(frozen=True, slots=True)
class CapturedSequence:
    """``tokens`` int32 [n]; ``states`` bfloat16 bits [n, W], a view of the file; position ``response_start``
    holds the first token the target wrote.
    """

    id: str
    source: str
    tokens: IntArray
    states: Bfloat16Bits
    response_start: int


def to_bfloat16(values: FloatArray) -> Bfloat16Bits:
    """Round float32 to bfloat16 bits, ties to even (IEEE 754). ``values`` must be finite."""
    bits = values.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)


def from_bfloat16(bits: Bfloat16Bits) -> FloatArray:
    """Return the float32 values of bfloat16 bits."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


class Shard:
    """One shard, opened. Raises ``ConfigError`` when a file is missing or has another size."""

    def __init__(self, folder: Path, number: int, form: CaptureForm) -> None:
        self.folder = folder
        self.number = number
        self.facts: dict[str, Any] = read_json(shard_path(folder, number))
        rows, sequences = self.facts["num_rows"], len(self.facts["ids"])
        shapes = {"states": (rows, form.width), "tokens": (rows,)}
        shapes |= {"offsets": (sequences + 1,), "response_starts": (sequences,)}
        types = {"u16": np.uint16, "i32": np.int32, "i64": np.int64}
        self._arrays: dict[str, Any] = {}
        for name, ending in ARRAYS.items():
            path, dtype = array_path(folder, number, name), np.dtype(types[ending])
            wanted = int(np.prod(shapes[name])) * dtype.itemsize
            have = path.stat().st_size if path.exists() else -1
            if have != wanted:
                raise ConfigError(
                    f"{path} has {max(have, 0)} bytes instead of {wanted}: delete "
                    f"{shard_path(folder, number)} and capture again"
                )
            # "c", so that PyTorch takes the arrays as they are; nothing written to them reaches the file.
            self._arrays[name] = np.memmap(path, dtype, "c", shape=shapes[name])

    def __len__(self) -> int:
        return len(self.facts["ids"])

    def sequence(self, index: int) -> CapturedSequence:
        """Return one of its sequences."""
        start, end = (int(row) for row in self._arrays["offsets"][index : index + 2])
        return CapturedSequence(
            id=self.facts["ids"][index],
            source=self.facts["sources"][index],
            tokens=np.asarray(self._arrays["tokens"][start:end]),
            states=np.asarray(self._arrays["states"][start:end]),
            response_start=int(self._arrays["response_starts"][index]),
        )

    @property
    def response_starts(self) -> npt.NDArray[np.int64]:
        return np.asarray(self._arrays["response_starts"])

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        offsets: npt.NDArray[np.int64] = np.asarray(self._arrays["offsets"])
        return np.diff(offsets)

    def check(self) -> None:
        """Read every byte. Raises ``ConfigError`` for a file whose checksum is wrong."""
        for name, digest in self.facts["sha256"].items():
            path = array_path(self.folder, self.number, name)
            if sha256_of(path) != digest:
                raise ConfigError(
                    f"{path} is damaged: delete {shard_path(self.folder, self.number)} and capture again"
                )


class CapturedData:
    """All finished shards of a folder.

    >>> data = CapturedData(Path("out/capture"))
    >>> item = data.sequence(0)                   # item.tokens, item.states, item.response_start
    >>> torch.from_numpy(item.states).view(torch.bfloat16)     # [n, W]
    """

    def __init__(self, folder: Path) -> None:
        """Raises ``ConfigError`` when there is nothing captured or a file is damaged in size."""
        self.folder = folder
        self.form = read_form(folder)
        self.shards = [Shard(folder, number, self.form) for number in range(count_shards(folder))]
        if not self.shards:
            raise ConfigError(f"{folder} holds no captured states: run the capture stage first")
        self._ends = np.cumsum([len(shard) for shard in self.shards])

    def __len__(self) -> int:
        """Number of sequences."""
        return int(self._ends[-1])

    def __iter__(self) -> Iterator[CapturedSequence]:
        return (self.sequence(index) for index in range(len(self)))

    def sequence(self, index: int) -> CapturedSequence:
        """Return sequence ``index``, counted over all shards. Raises ``IndexError``."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        place = int(np.searchsorted(self._ends, index, side="right"))
        start = int(self._ends[place - 1]) if place else 0
        return self.shards[place].sequence(index - start)

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each sequence, int64 [sequences]."""
        return np.concatenate([shard.lengths for shard in self.shards])

    @cached_property
    def response_starts(self) -> npt.NDArray[np.int64]:
        """Where each sequence's response starts, int64 [sequences]."""
        return np.concatenate([shard.response_starts for shard in self.shards])

    @property
    def num_tokens(self) -> int:
        return int(self.lengths.sum())

    @property
    def num_response_tokens(self) -> int:
        return int((self.lengths - self.response_starts).sum())

    def check(self) -> None:
        """Compare every checksum. Raises ``ConfigError``."""
        for shard in self.shards:
            shard.check()

    @cached_property
    def digest(self) -> str:
        """SHA-256 over form and checksums: what the states are, without reading them again."""
        parts = [repr(sorted(asdict(self.form).items()))]
        parts += [repr(sorted(shard.facts["sha256"].items())) for shard in self.shards]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def read_form(folder: Path) -> CaptureForm:
    """Return what the states of ``folder`` are. Raises ``ConfigError``."""
    path = folder / FORM_FILE
    if not path.is_file():
        raise ConfigError(f"{folder} holds no captured states: run the capture stage first")
    values = read_json(path)
    try:
        return CaptureForm(**{**values, "layers": tuple(values["layers"])})
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged ({error}): delete {folder} and capture again") from error


def count_shards(folder: Path) -> int:
    """Return how many shards are finished, counted from 0 without a gap."""
    number = 0
    while shard_path(folder, number).is_file():
        number += 1
    return number


def shard_path(folder: Path, number: int) -> Path:
    """Return the path of a shard's facts."""
    return folder / f"shard-{number:04d}.json"


def array_path(folder: Path, number: int, name: str) -> Path:
    """Return the path of one array of a shard."""
    return folder / f"{name}-{number:04d}.{ARRAYS[name]}"
