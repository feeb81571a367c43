"""The tensors of a GGUF file, read in row pieces so that no more than one piece is ever in memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.errors import ModelFileError
from paceline.models.gguf_file import GgufHeader
from paceline.models.spec import TensorInfo


@dataclass(frozen=True, slots=True)
class RowSlice:
    """Part of a fused tensor: ``rows`` rows from ``start`` on, presented under ``name``."""

    name: str
    start: int
    rows: int


class GgufSource:
    """``TensorSource`` over a GGUF file.

    The weights are never mapped, so they do not stay resident. May be read from several threads.

    ``splits`` maps the name of a fused tensor to the slices it is presented as.
    """

    def __init__(self, header: GgufHeader, splits: Mapping[str, Sequence[RowSlice]]) -> None:
        self._path = header.path
        self._offsets: dict[str, int] = {}
        self._tensors: dict[str, TensorInfo] = {}
        for tensor in header.tensors.values():
            for part in splits.get(tensor.name, [RowSlice(tensor.name, 0, -1)]):
                shape = tensor.shape if part.rows < 0 else (part.rows, *tensor.shape[1:])
                row_bytes = tensor.row_bytes
                self._tensors[part.name] = TensorInfo(part.name, shape, tensor.ggml_type, row_bytes)
                self._offsets[part.name] = tensor.offset + part.start * row_bytes
        self._file = header.path.open("rb", buffering=0)
        self._lock = threading.Lock()

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._tensors

    def read_rows(self, name: str, start: int, count: int) -> npt.NDArray[np.uint8]:
        info = self._tensors[name]
        rows = info.shape[0] if len(info.shape) > 1 else 1
        if start < 0 or count < 0 or start + count > rows:
            raise IndexError(f"rows {start} to {start + count} of {name}, which has {rows}")
        data = np.empty(count * info.row_bytes, np.uint8)
        self._read_into(data.data, self._offsets[name] + start * info.row_bytes, name)
        return data

    def close(self) -> None:
        self._file.close()

    def _read_into(self, view: memoryview, offset: int, name: str) -> None:
        """Fill ``view`` from ``offset``; one read may return less than asked (at most 2 GiB on Linux)."""
        with self._lock:
            self._file.seek(offset)
            done = 0
            while done < len(view):
                piece = self._file.readinto(view[done:])
                if not piece:
                    raise ModelFileError(
                        f"{self._path} ended inside tensor {name!r}: it was cut while open, download it again"
                    )
                done += piece
