"""Write what ``torch.save`` writes for a dictionary of tensors, opcode by opcode, without torch."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

STORAGES = {
    "F32": "FloatStorage",
    "F16": "HalfStorage",
    "BF16": "BFloat16Storage",
    "I64": "LongStorage",
    "BOOL": "BoolStorage",
}


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def tuple_of(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def named(module: str, name: str) -> bytes:
    return b"c" + f"{module}\n{name}\n".encode()


def call(function: bytes, *arguments: bytes) -> bytes:
    return function + tuple_of(*arguments) + b"R"


def tensor(key: str, kind: str, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> bytes:
    """Return the opcodes that rebuild a tensor which fills storage ``key``."""
    count, wanted = 1, []
    for size in reversed(shape):
        wanted.insert(0, count)
        count *= size
    storage = tuple_of(text("storage"), named("torch", STORAGES[kind]), text(key), text("cpu"), number(count))
    return call(
        named("torch._utils", "_rebuild_tensor_v2"),
        storage + b"Q",
        number(0),
        tuple_of(*map(number, shape)),
        tuple_of(*map(number, strides or tuple(wanted))),
        b"\x89",
        call(named("collections", "OrderedDict")),
    )


def table(entries: Mapping[str, bytes]) -> bytes:
    """Return a whole pickle: a dictionary of name → opcodes."""
    items = b"".join(text(name) + value for name, value in entries.items())
    return b"\x80\x02}(" + items + b"u."


def write_archive(path: Path, pickle: bytes, storages: Mapping[str, bytes], folder: str = "archive") -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{folder}/data.pkl", pickle)
        archive.writestr(f"{folder}/byteorder", "little")
        for key, raw in storages.items():
            archive.writestr(f"{folder}/data/{key}", raw)
        archive.writestr(f"{folder}/version", "3\n")


def write_torch_bin(path: Path, tensors: Mapping[str, tuple[str, npt.NDArray[Any]]]) -> None:
    """Write name → (safetensors' type name, array)."""
    keys = {name: str(index) for index, name in enumerate(tensors)}
    entries = {name: tensor(keys[name], kind, values.shape) for name, (kind, values) in tensors.items()}
    write_archive(
        path, table(entries), {keys[name]: values.tobytes() for name, (_, values) in tensors.items()}
    )
