"""Read the tensors of a ``pytorch_model.bin`` without torch, and without running anything in it.

torch's format since 1.6 is a zip archive: ``NAME/data.pkl`` is a pickle that describes the tensors,
``NAME/data/KEY`` holds the bytes of one storage, uncompressed
(https://docs.pytorch.org/docs/stable/notes/serialization.html). A pickle is a program. This module does not
hand it to ``pickle``: it reads the opcodes one by one, knows those a dictionary of tensors is made of, and
refuses every other one and every global but torch's tensor rebuilders, by name.
"""

from __future__ import annotations

import math
import pickletools
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import ModelFileError
from paceline.models import ggml_types
from paceline.models.ggml_types import GgmlType
from paceline.models.safetensors_file import BOOL, I32, I64, StoredTensor

MAX_PICKLE_BYTES = 1 << 24
"""Largest description accepted; a head's has a few kilobytes."""
STORAGES: dict[str, GgmlType] = {
    "FloatStorage": ggml_types.F32,
    "HalfStorage": ggml_types.F16,
    "BFloat16Storage": ggml_types.BF16,
    "LongStorage": I64,
    "IntStorage": I32,
    "BoolStorage": BOOL,
}
_LOCAL_HEADER_BYTES = 30
_LITTLE = b"little"
_LITERALS = ("BININT", "LONG", "BINUNICODE", "SHORT_BINUNICODE", "BINFLOAT")


@dataclass(frozen=True, slots=True)
class _Global:
    """The name of something the pickle refers to; never looked up."""

    name: str


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    kind: GgmlType
    count: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    storage: _Storage
    first: int
    shape: tuple[int, ...]


class _NotTensorsError(Exception):
    """The pickle is not a plain dictionary of tensors; the text says why."""


def read_torch_tensors(path: Path) -> dict[str, StoredTensor]:
    """Return name → place of every tensor of ``path``.

    Raises ``ModelFileError`` for a file that is cut, in torch's old format, compressed, or a pickle that
    would run code; nothing in the file is ever executed.
    """
    with path.open("rb") as file:
        start = file.read(4)
    if start[:2] != b"PK":
        raise ModelFileError(
            f"{path} is not in torch's zip format (it is torch's old format, cut, or something else): "
            "convert it to model.safetensors, or load it with torch and torch.save it again"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            table = _read_table(archive)
            entries = {info.filename: info for info in archive.infolist()}
        return {name: _placed(path, entries, table.folder, tensor) for name, tensor in table.tensors.items()}
    except _NotTensorsError as error:
        raise ModelFileError(f"{path} {error}") from None
    except (zipfile.BadZipFile, zipfile.LargeZipFile, OSError, EOFError, ValueError) as error:
        raise ModelFileError(f"{path} is a broken archive ({error}): download it again") from error
    except (NotImplementedError, RuntimeError) as error:  # a compression method, or encryption
        raise ModelFileError(f"{path} is packed in a way torch never does ({error})") from error


@dataclass(frozen=True, slots=True)
class _Table:
    folder: str
    tensors: dict[str, _Tensor]


def _read_table(archive: zipfile.ZipFile) -> _Table:
    found = [info for info in archive.infolist() if info.filename.endswith("/data.pkl")]
    if len(found) != 1:
        raise _NotTensorsError(
            f"holds {len(found)} entries data.pkl instead of one: it was not written by torch.save"
        )
    if found[0].file_size > MAX_PICKLE_BYTES:
        raise _NotTensorsError(
            f"describes its tensors in {found[0].file_size} bytes; at most {MAX_PICKLE_BYTES} are read"
        )
    folder = found[0].filename.removesuffix("data.pkl")
    for info in archive.infolist():
        is_order = info.filename == f"{folder}byteorder"
        # By its stated size first: what is packed may unpack to any size.
        if not is_order or (info.file_size == len(_LITTLE) and archive.read(info) == _LITTLE):
            continue
        raise _NotTensorsError("was written on a big-endian machine: convert it to safetensors there")
    value = _Reader(archive.read(found[0])).run()
    if not isinstance(value, dict):
        raise _NotTensorsError("holds no dictionary of tensors: save the module's state_dict()")
    for name, tensor in value.items():
        if not isinstance(tensor, _Tensor):
            raise _NotTensorsError(
                f"holds {name!r:.60}, which is no tensor: save the module's state_dict() alone"
            )
    return _Table(folder, value)


def _placed(path: Path, entries: dict[str, zipfile.ZipInfo], folder: str, tensor: _Tensor) -> StoredTensor:
    """Return where a tensor's bytes lie in the archive file itself."""
    storage = tensor.storage
    entry = entries.get(f"{folder}data/{storage.key}")
    size = storage.count * storage.kind.block_bytes
    if entry is None or entry.compress_type != zipfile.ZIP_STORED or entry.file_size < size:
        raise _NotTensorsError(
            f"lacks the {size} stored bytes of data/{storage.key}: it is cut, download it again"
        )
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        header = file.read(_LOCAL_HEADER_BYTES)
    if len(header) < _LOCAL_HEADER_BYTES or header[:4] != b"PK\x03\x04":
        raise _NotTensorsError(
            f"has no entry where its index puts data/{storage.key}: it is corrupt, download it again"
        )
    names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    start = entry.header_offset + _LOCAL_HEADER_BYTES + names
    if start + size > path.stat().st_size:
        raise _NotTensorsError(f"ends inside data/{storage.key}: it is cut, download it again")
    return StoredTensor(path, tensor.shape, storage.kind, start + tensor.first * storage.kind.block_bytes)


class _Reader:
    """Interprets the opcodes that make dictionaries, tuples, numbers, texts and tensors."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._actions: dict[str, Callable[[], None]] = {
            "MARK": lambda: self._marks.append(len(self._stack)),
            "TUPLE": lambda: self._push(tuple(self._since_mark())),
            "TUPLE1": lambda: self._push(tuple(self._popped(1))),
            "TUPLE2": lambda: self._push(tuple(self._popped(2))),
            "TUPLE3": lambda: self._push(tuple(self._popped(3))),
            "SETITEM": lambda: self._set_items(self._popped(2)),
            "SETITEMS": lambda: self._set_items(self._since_mark()),
            "APPEND": lambda: self._extend(self._popped(1)),
            "APPENDS": lambda: self._extend(self._since_mark()),
            "MEMOIZE": lambda: self._memo.update({len(self._memo): self._stack[-1]}),
            "BINPERSID": lambda: self._push(_storage(self._popped(1)[0])),
            "REDUCE": lambda: self._push(_called(*self._popped(2))),
            "STACK_GLOBAL": lambda: self._push(_global(*self._popped(2))),
            # State set on a dictionary is the _metadata of a state_dict; nothing here reads it.
            "BUILD": lambda: self._drop_state(*self._popped(2)),
        }
        self._fresh: dict[str, Callable[[], Any]] = {
            "EMPTY_DICT": dict,
            "EMPTY_LIST": list,
            "EMPTY_TUPLE": tuple,
            "NONE": lambda: None,
            "NEWTRUE": lambda: True,
            "NEWFALSE": lambda: False,
        }

    def run(self) -> Any:
        """Return what the pickle describes. Raises ``_NotTensorsError``."""
        try:
            for opcode, argument, _ in pickletools.genops(self._data):
                if opcode.name == "STOP":
                    return self._popped(1)[0]
                self._step(opcode.name, argument)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise _NotTensorsError(f"has a damaged description ({error}): download it again") from error
        raise _NotTensorsError("has a description that does not end: it is cut, download it again")

    def _step(self, name: str, argument: Any) -> None:
        if name in self._actions:
            self._actions[name]()
        elif name in self._fresh:
            self._push(self._fresh[name]())
        elif name in ("PROTO", "FRAME"):
            pass
        elif name == "GLOBAL":
            self._push(_global(*argument.split(" ", 1)))
        elif name.endswith("PUT"):
            self._memo[int(argument)] = self._stack[-1]
        elif name.endswith("GET"):
            self._push(self._memo[int(argument)])
        elif name.startswith(_LITERALS):
            self._push(argument)
        else:
            raise _NotTensorsError(
                f"uses the pickle opcode {name}, which no file of tensors needs: it was not read"
            )

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _popped(self, count: int) -> list[Any]:
        """Take the last ``count`` values, first of them first; a mark is never passed."""
        floor = self._marks[-1] if self._marks else 0
        if len(self._stack) - floor < count:
            raise ValueError("the stack is empty")
        values = self._stack[-count:]
        del self._stack[-count:]
        return values

    def _since_mark(self) -> list[Any]:
        mark = self._marks.pop()
        values = self._stack[mark:]
        del self._stack[mark:]
        return values

    def _set_items(self, items: Sequence[Any]) -> None:
        # Texts alone: hashing or printing a tuple of tuples of … may take for ever.
        if not all(isinstance(key, str) for key in items[::2]):
            raise _NotTensorsError(
                "holds a dictionary whose keys are no texts: save the module's state_dict() alone"
            )
        self._stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def _extend(self, items: Sequence[Any]) -> None:
        self._stack[-1].extend(items)

    def _drop_state(self, value: Any, state: Any) -> None:
        if not isinstance(value, dict):
            raise _NotTensorsError(
                f"sets the state of a {type(value).__name__}, which no file of tensors does"
            )
        self._push(value)


def _global(module: Any, name: Any) -> _Global:
    """Return a reference, unresolved, to one of the few names a dictionary of tensors needs."""
    if not isinstance(module, str) or not isinstance(name, str):
        raise _NotTensorsError("refers to something without a name: it is corrupt, download it again")
    full = f"{module}.{name}"
    if full in _CALLABLE:
        return _Global(full)
    if module == "torch" and name.endswith("Storage"):
        if name not in STORAGES:
            raise _NotTensorsError(f"stores tensors as {name}; supported are {', '.join(STORAGES)}")
        return _Global(full)
    raise _NotTensorsError(
        f"refers to {full!r:.100}: a pickle that names it can run code when it is loaded, so nothing of it "
        "was read or run; take a file of tensors alone, best model.safetensors"
    )


def _storage(reference: Any) -> _Storage:
    """Return a storage from torch's persistent id ("storage", type, key, device, number of values)."""
    tag, kind, key, _, count = reference
    if tag != "storage" or not isinstance(kind, _Global) or not isinstance(key, str):
        raise _NotTensorsError("refers to something that is no storage: it was not written by torch.save")
    return _Storage(key, STORAGES[kind.name.removeprefix("torch.")], _whole(count))


def _called(function: Any, arguments: Any) -> Any:
    if not isinstance(function, _Global) or not isinstance(arguments, tuple):
        raise _NotTensorsError(
            "calls something that has no name: a pickle that can run code; nothing of it was run"
        )
    return _CALLABLE[function.name](*arguments)


def _rebuilt(storage: Any, first: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise _NotTensorsError("rebuilds a tensor from something that is no storage")
    sizes = tuple(_whole(size) for size in shape)
    wanted = 1
    for size, stride in reversed(list(zip(sizes, strides, strict=True))):
        if size > 1 and stride != wanted:
            raise _NotTensorsError(
                "holds a tensor whose rows do not lie one behind the other: save it .contiguous()"
            )
        wanted *= size
    if _whole(first) + math.prod(sizes) > storage.count:
        raise _NotTensorsError(f"holds a tensor {list(sizes)} that reaches past its storage: it is corrupt")
    return _Tensor(storage, first, sizes)


def _parameter(data: Any, *_: Any) -> Any:
    return data


def _ordered() -> dict[str, Any]:
    return {}


_CALLABLE: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _ordered,
    "torch._utils._rebuild_tensor_v2": _rebuilt,
    "torch._utils._rebuild_parameter": _parameter,
}


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 40:
        raise _NotTensorsError("states a size or an offset out of range: it is corrupt, download it again")
    return value
