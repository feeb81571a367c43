"""Read safetensors files: where each tensor lies, checked, and its rows in pieces.

The ``safetensors`` package maps the whole file and has no bfloat16 for numpy; the format is eight bytes of
length and a JSON table, so it is read here (https://huggingface.co/docs/safetensors, "Format").
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import ModelFileError
from paceline.models import ggml_types
from paceline.models.ggml_types import GgmlType

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""
STORED_TYPES: dict[str, GgmlType] = {"F32": ggml_types.F32, "F16": ggml_types.F16, "BF16": ggml_types.BF16}
I64 = GgmlType("I64", 27, 1, 8)
I32 = GgmlType("I32", 26, 1, 4)
BOOL = GgmlType("BOOL", -1, 1, 1)
INDEX_TYPES: dict[str, GgmlType] = {kind.name: kind for kind in (I64, I32, BOOL)}
"""Types of vocabulary maps, never of weights."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a folder. ``offset``: bytes from the start of ``path``."""

    path: Path
    shape: tuple[int, ...]
    kind: GgmlType
    offset: int


def read_folder_tensors(
    folder: Path, types: Mapping[str, GgmlType] = STORED_TYPES
) -> dict[str, StoredTensor]:
    """Return name → place of every tensor in a folder's safetensors files, sharded or not.

    ``types``: storage types that are accepted, by safetensors' names. Raises ``ModelFileError`` when a file
    is missing, cut or inconsistent.
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return _read_shards(folder, index, types)
    single = folder / "model.safetensors"
    if not single.is_file():
        raise ModelFileError(
            f"{folder} holds neither model.safetensors nor model.safetensors.index.json; only safetensors "
            "weights are read (convert .bin files with transformers' save_pretrained)"
        )
    return _read_header(single, types)


def _read_shards(folder: Path, index: Path, types: Mapping[str, GgmlType]) -> dict[str, StoredTensor]:
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise ModelFileError(f"{index} has no weight_map of file names: download it again")
    tensors: dict[str, StoredTensor] = {}
    for file in sorted(set(weight_map.values())):
        path = folder / file
        if Path(file).name != file or not path.is_file():
            raise ModelFileError(f"{index} names the file {file!r}, which is not in the folder: download it")
        tensors |= _read_header(path, types)
    absent = sorted(set(weight_map) - set(tensors))
    if absent:
        raise ModelFileError(f"{index} lists {len(absent)} tensors no file holds (first {absent[0]!r})")
    return tensors


def _read_header(path: Path, types: Mapping[str, GgmlType]) -> dict[str, StoredTensor]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
            raise ModelFileError(
                f"{path} states a header of {length} bytes but has {size}: it is truncated, download it again"
            )
        raw = file.read(length)
    try:
        table = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} has a header that is no JSON ({error}): download it again") from error
    if not isinstance(table, dict):
        raise ModelFileError(f"{path} has a header that is no table: download it again")
    return {
        name: _checked_entry(path, name, entry, 8 + length, size, types)
        for name, entry in table.items()
        if name != "__metadata__"
    }


def _checked_entry(
    path: Path, name: str, entry: Any, data_start: int, size: int, types: Mapping[str, GgmlType]
) -> StoredTensor:
    try:
        dtype, shape = entry["dtype"], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        are_integers = all(type(value) is int and value >= 0 for value in (*shape, begin, end))
    except (TypeError, KeyError, ValueError) as error:
        raise ModelFileError(f"{path} describes tensor {name!r} badly: download it again") from error
    if dtype not in types:
        raise ModelFileError(
            f"{path} stores {name!r} as {dtype!r:.20}; supported are {', '.join(types)} "
            "(save the model unquantised and choose a quant here)"
        )
    kind = types[dtype]
    if not are_integers or math.prod(shape) * kind.block_bytes != end - begin or data_start + end > size:
        raise ModelFileError(
            f"{path}: tensor {name!r} of shape {list(shape)} does not fit bytes {begin} to {end} of a file "
            f"of {size} bytes: it is truncated or corrupt, download it again"
        )
    return StoredTensor(path, shape, kind, data_start + begin)


def read_json_object(path: Path) -> dict[str, Any]:
    """Return a JSON file's top-level object. Raises ``ModelFileError`` when it is anything else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelFileError(f"{path.parent} has no {path.name}: download the whole folder") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} cannot be read as JSON ({error}): download it again") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} is no JSON object: download it again")
    return value
