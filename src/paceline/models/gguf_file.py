"""Read the header of a GGUF file: its metadata and its tensor table, fast, small and strict.

Why not ``gguf.GGUFReader``: see docs/adr/0005-own-gguf-header-parser.md. Nothing in the file is believed
before it is checked against the bytes that are really there, so a hostile header costs neither memory nor
time. The layout follows the GGUF specification (ggml, docs/gguf.md), versions 2 and 3, little-endian.

>>> header = read_gguf_header(Path("SmolLM2-135M-Instruct.Q4_1.gguf"))
>>> header.metadata["llama.block_count"]
30
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from paceline.errors import ModelFileError, ModelNotFoundError
from paceline.models.ggml_types import GGML_TYPES, GgmlType
from paceline.models.string_array import StringArray

MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_HEADER_BYTES = 1 << 28
"""Largest header accepted; the 262,144-token vocabulary of Gemma 3 makes one of 6.5 MB."""
MAX_ENTRIES = 100_000
"""Most metadata keys, and most tensors, accepted in one file."""
MAX_KEY_BYTES = (1 << 16) - 1
MAX_TENSOR_NAME_BYTES = 64
MAX_DIMENSIONS = 4

_READ_AHEAD = 1 << 20
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_STRING = 8
_ARRAY = 9
_SCALARS: dict[int, np.dtype[Any]] = {
    number: np.dtype(code)
    for number, code in {
        0: "<u1",
        1: "<i1",
        2: "<u2",
        3: "<i2",
        4: "<u4",
        5: "<i4",
        6: "<f4",
        7: "?",
        10: "<u8",
        11: "<i8",
        12: "<f8",
    }.items()
}

MetadataValue = int | float | bool | str | npt.NDArray[Any] | StringArray


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One entry of the tensor table.

    ``shape`` is (rows, columns), or (n,); more dimensions stand outermost first. ``offset``: bytes from the
    start of the file.
    """

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int
    size: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row (of the whole vector)."""
        return GGML_TYPES[self.ggml_type].row_bytes(self.shape[-1])


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """All that stands before the tensor data. ``data_offset`` is where that data starts, in bytes."""

    path: Path
    version: int
    metadata: Mapping[str, MetadataValue]
    tensors: Mapping[str, GgufTensor]
    data_offset: int


def is_gguf(path: Path) -> bool:
    """Return whether the file starts with GGUF's magic bytes."""
    with path.open("rb") as file:
        return file.read(4) == MAGIC


def read_gguf_header(path: Path, types: Mapping[int, GgmlType] = GGML_TYPES) -> GgufHeader:
    """Parse and check the header of ``path``. ``types``: storage types that are accepted, by number.

    Raises ``ModelNotFoundError`` when there is no such file and ``ModelFileError``, naming what is wrong and
    where, when it is not a GGUF file that can be read.
    """
    try:
        with path.open("rb") as file:
            return _HeaderParser(file, path, types).parse()
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"there is no model file {str(path)!r}") from error
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror or error})") from error


class _HeaderParser:
    """A cursor over the start of the file that reads on only as far as the header goes."""

    def __init__(self, file: IO[bytes], path: Path, types: Mapping[int, GgmlType]) -> None:
        self._types = types
        self._file = file
        self._path = path
        self._size = path.stat().st_size
        self._buffer = bytearray()
        self._position = 0

    def parse(self) -> GgufHeader:
        version = self._read_magic_and_version()
        tensor_count = self._count("tensor count", smallest_entry=24)
        metadata_count = self._count("metadata count", smallest_entry=13)
        metadata = self._read_metadata(metadata_count)
        raw_tensors = [self._read_tensor_entry(index) for index in range(tensor_count)]
        alignment = self._alignment(metadata)
        data_offset = -(-self._position // alignment) * alignment
        tensors = self._place_tensors(raw_tensors, alignment, data_offset)
        return GgufHeader(self._path, version, metadata, tensors, data_offset)

    # ---- pieces of the header ----

    def _read_magic_and_version(self) -> int:
        magic = self._bytes(4, "magic") if self._size >= 4 else b""
        if magic != MAGIC:
            raise self._error(f"starts with {magic!r}, not {MAGIC!r}: it is not a GGUF file")
        version = self._u32("version")
        if version not in SUPPORTED_VERSIONS:
            if int.from_bytes(version.to_bytes(4, "big"), "little") in SUPPORTED_VERSIONS:
                raise self._error("is big-endian; convert it to little-endian with gguf's convert script")
            raise self._error(f"has GGUF version {version}; versions 2 and 3 are supported, convert it again")
        return version

    def _count(self, what: str, smallest_entry: int) -> int:
        count = self._u64(what)
        if count > MAX_ENTRIES or count * smallest_entry > self._size:
            raise self._error(f"states a {what} of {count}, more than the file can hold")
        return count

    def _read_metadata(self, count: int) -> dict[str, MetadataValue]:
        metadata: dict[str, MetadataValue] = {}
        for index in range(count):
            key = self._string(f"key {index}", MAX_KEY_BYTES)
            if key in metadata:
                raise self._error(f"has the metadata key {key!r} twice")
            metadata[key] = self._value(self._u32(f"type of {key!r}"), key)
        return metadata

    def _value(self, kind: int, key: str) -> MetadataValue:
        if kind == _STRING:
            return self._string(key, MAX_HEADER_BYTES)
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            raise self._error(f"gives {key!r} the unknown value type {kind}")
        dtype = _SCALARS[kind]
        value: int | float | bool = np.frombuffer(self._bytes(dtype.itemsize, key), dtype)[0].item()
        return value

    def _array(self, key: str) -> MetadataValue:
        kind, count = self._u32(f"element type of {key!r}"), self._u64(f"length of {key!r}")
        if kind == _STRING:
            return self._string_array(key, count)
        if kind == _ARRAY:
            raise self._error(f"nests an array in the array {key!r}; no known model does, so it is refused")
        if kind not in _SCALARS:
            raise self._error(f"gives the elements of {key!r} the unknown type {kind}")
        dtype = _SCALARS[kind]
        return np.frombuffer(self._bytes(count * dtype.itemsize, f"array {key!r}"), dtype)

    def _string_array(self, key: str, count: int) -> StringArray:
        if count * 8 > self._size - self._position:
            raise self._too_short(f"the {count} strings of {key!r}")
        buffer, unpack, grow = self._buffer, _U64.unpack_from, self._grow
        start = position = self._position
        limit = len(buffer)
        starts = array("q")
        append: Callable[[int], None] = starts.append
        for _ in range(count):
            position += 8
            if position > limit:
                limit = grow(position, key)
            append(position - start)
            position += unpack(buffer, position - 8)[0]
            if position > limit:
                limit = grow(position, key)
        append(position + 8 - start)
        self._position = position
        return StringArray(bytes(memoryview(buffer)[start:position]), starts, key)

    def _read_tensor_entry(self, index: int) -> tuple[str, tuple[int, ...], int, int]:
        """Return name, shape (outermost first), type and offset from the start of the data."""
        name = self._string(f"name of tensor {index}", MAX_TENSOR_NAME_BYTES)
        num_dims = self._u32(f"dimensions of {name!r}")
        if not 1 <= num_dims <= MAX_DIMENSIONS:
            raise self._error(
                f"gives tensor {name!r} {num_dims} dimensions; 1 to {MAX_DIMENSIONS} are allowed"
            )
        dims = struct.unpack(f"<{num_dims}Q", self._bytes(8 * num_dims, f"shape of {name!r}"))
        kind = self._u32(f"type of {name!r}")
        return name, tuple(reversed(dims)), kind, self._u64(f"offset of {name!r}")

    def _alignment(self, metadata: Mapping[str, MetadataValue]) -> int:
        value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        valid = isinstance(value, int) and 0 < value <= 1 << 20 and value & (value - 1) == 0
        if not valid or isinstance(value, bool):
            raise self._error(f"has general.alignment = {value!r}; a power of two is needed")
        return int(value)  # type: ignore[arg-type]

    def _place_tensors(
        self, raw: list[tuple[str, tuple[int, ...], int, int]], alignment: int, data_offset: int
    ) -> dict[str, GgufTensor]:
        tensors: dict[str, GgufTensor] = {}
        for name, shape, kind, offset in raw:
            if name in tensors:
                raise self._error(f"has the tensor {name!r} twice")
            if offset % alignment:
                raise self._error(
                    f"puts tensor {name!r} at offset {offset}, which is not {alignment}-aligned"
                )
            size = self._tensor_bytes(name, shape, kind)
            if data_offset + offset + size > self._size:
                raise self._error(
                    f"ends at byte {self._size}, but tensor {name!r} needs bytes {data_offset + offset} to "
                    f"{data_offset + offset + size}: it is truncated or corrupt, download it again"
                )
            tensors[name] = GgufTensor(name, shape, kind, data_offset + offset, size)
        self._refuse_overlaps(tensors)
        return tensors

    def _tensor_bytes(self, name: str, shape: tuple[int, ...], kind: int) -> int:
        if kind not in self._types:
            known = " ".join(known.name for known in self._types.values())
            raise self._error(f"stores tensor {name!r} as type {_type_label(kind)}; supported are {known}")
        if 0 in shape:
            raise self._error(f"gives tensor {name!r} the empty shape {shape}")
        try:
            return math.prod(shape[:-1]) * self._types[kind].row_bytes(shape[-1])
        except ValueError as error:
            raise self._error(f"gives tensor {name!r} the shape {shape}, but {error}") from error

    def _refuse_overlaps(self, tensors: Mapping[str, GgufTensor]) -> None:
        ordered = sorted(tensors.values(), key=lambda tensor: tensor.offset)
        for before, after in pairwise(ordered):
            if before.offset + before.size > after.offset:
                raise self._error(f"lets the tensors {before.name!r} and {after.name!r} overlap")

    # ---- the cursor ----

    def _grow(self, needed: int, what: str) -> int:
        """Read on until ``needed`` bytes are held; return how many are held."""
        if needed > self._size:
            raise self._too_short(what)
        if needed > MAX_HEADER_BYTES:
            raise self._error(f"has a header of more than {MAX_HEADER_BYTES >> 20} MiB (at {what}): refused")
        self._buffer += self._file.read(max(needed - len(self._buffer), _READ_AHEAD))
        if needed > len(self._buffer):
            raise self._too_short(what)
        return len(self._buffer)

    def _bytes(self, count: int, what: str) -> bytes:
        end = self._position + count
        if end > len(self._buffer):
            self._grow(end, what)
        piece = bytes(memoryview(self._buffer)[self._position : end])
        self._position = end
        return piece

    def _u32(self, what: str) -> int:
        return int(_U32.unpack(self._bytes(4, what))[0])

    def _u64(self, what: str) -> int:
        return int(_U64.unpack(self._bytes(8, what))[0])

    def _string(self, what: str, longest: int) -> str:
        length = self._u64(f"length of {what}")
        if length > longest:
            raise self._error(f"gives {what} a length of {length} bytes; at most {longest} are allowed")
        try:
            return self._bytes(length, what).decode()
        except UnicodeDecodeError as error:
            raise self._error(f"holds invalid UTF-8 in {what}: it is corrupt, download it again") from error

    def _too_short(self, what: str) -> ModelFileError:
        return self._error(
            f"has only {self._size} bytes, too few for {what}: it is truncated or corrupt, download it again"
        )

    def _error(self, what: str) -> ModelFileError:
        return ModelFileError(f"{self._path} {what}")


def _type_label(kind: int) -> str:
    """Name a storage type that is not supported, for an error message."""
    from gguf import GGMLQuantizationType

    try:
        return str(GGMLQuantizationType(kind).name)
    except ValueError:
        return f"number {kind}"
