"""pytorch_model.bin is read as data: torch's own files open, and nothing that could run is ever run."""

from __future__ import annotations

import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.errors import ModelFileError
from paceline.models.safetensors_file import StoredTensor
from paceline.models.torch_pickle import read_torch_tensors
from support.torch_bin import (
    call,
    named,
    number,
    table,
    tensor,
    text,
    tuple_of,
    write_archive,
    write_torch_bin,
)

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)
STORAGE = {"0": VALUES.tobytes()}


def stored_bytes(tensor: StoredTensor) -> bytes:
    size = int(np.prod(tensor.shape)) * tensor.kind.block_bytes
    return tensor.path.read_bytes()[tensor.offset : tensor.offset + size]


def test_all_kinds_of_storage(tmp_path: Path) -> None:
    arrays = {
        "a.weight": ("F32", VALUES),
        "b": ("F16", VALUES.astype(np.float16)),
        "c": ("BF16", np.arange(5, dtype=np.uint16)),
        "d2t": ("I64", np.arange(7)),
        "t2d": ("BOOL", np.array([True, False])),
    }
    write_torch_bin(tmp_path / "m.bin", arrays)
    found = read_torch_tensors(tmp_path / "m.bin")
    assert {name: stored_bytes(entry) for name, entry in found.items()} == {
        name: values.tobytes() for name, (_, values) in arrays.items()
    }
    assert [entry.kind.name for entry in found.values()] == ["F32", "F16", "BF16", "I64", "BOOL"]
    assert found["a.weight"].shape == (3, 4)


@pytest.mark.reference
def test_what_torch_saves(tmp_path: Path) -> None:
    """State dicts with shared storages, views, parameters and scalars, in two pickle protocols."""
    torch = pytest.importorskip("torch")
    base = torch.arange(24, dtype=torch.bfloat16)
    state = torch.nn.Linear(3, 2).state_dict()
    state |= {"view": base[6:18].reshape(3, 4), "tied": base, "p": torch.nn.Parameter(torch.ones(2, 3))}
    state |= {"scalar": torch.tensor(3), "mask": torch.tensor([True, False, True])}
    for protocol in (2, 4):
        path = tmp_path / f"{protocol}.bin"
        torch.save(state, path, pickle_protocol=protocol)
        found = read_torch_tensors(path)
        assert list(found) == list(state)
        for name, values in state.items():
            assert found[name].shape == tuple(values.shape)
            raw = values.detach().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
            assert stored_bytes(found[name]) == raw, name


@pytest.mark.reference
def test_torchs_old_format_is_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.ones(2)}, tmp_path / "old.bin", _use_new_zipfile_serialization=False)
    with pytest.raises(ModelFileError, match=r"not in torch's zip format .*old format.*torch\.save it again"):
        read_torch_tensors(tmp_path / "old.bin")


class Evil:
    """Unpickled by ``pickle`` it would write a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> object:
        return (Path.touch, (self.mark,))


def test_code_is_refused_by_name_and_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for protocol in (2, 3, 4, 5):
        evil = pickle.dumps({"fc.weight": Evil(mark)}, protocol=protocol)
        pickle.loads(evil)
        assert mark.exists(), "the pickle would not have done harm: the test proves nothing"
        mark.unlink()
        write_archive(tmp_path / "m.bin", evil, {})
        with pytest.raises(ModelFileError, match=r"refers to '(builtins|__builtin__|pathlib)\."):
            read_torch_tensors(tmp_path / "m.bin")
        assert not mark.exists()


GOOD = tensor("0", "F32", (3, 4))
_PICKLES: dict[str, tuple[bytes, str]] = {
    "system": (table({"a": call(named("os", "system"), text("true"))}), "refers to 'os.system'"),
    "eval": (table({"a": call(named("builtins", "eval"), text("1"))}), "refers to 'builtins.eval'"),
    "module": (table({"a": named("__main__", "Model")}), "refers to '__main__.Model'"),
    "double": (
        table({"a": tuple_of(text("storage"), named("torch", "DoubleStorage"))}),
        "stores tensors as DoubleStorage; supported are",
    ),
    "old class": (b"\x80\x02(ios\nsystem\n.", "opcode INST"),
    "new object": (b"\x80\x02" + named("collections", "OrderedDict") + b")\x81.", "opcode NEWOBJ"),
    "extension": (b"\x80\x02\x82\x01.", "opcode EXT1"),
    "state": (table({"a": named("torch._utils", "_rebuild_tensor_v2") + b"}b"}), "sets the state of a"),
    "number": (table({"step": number(3)}), "'step', which is no tensor"),
    "nested": (table({"state": b"}"}), "'state', which is no tensor"),
    "list": (b"\x80\x02].", "no dictionary of tensors"),
    "keys": (b"\x80\x02}K\x01K\x02s.", "keys are no texts"),
    "call a tensor": (table({"a": call(GOOD, number(1))}), "calls something that has no name"),
    "no end": (b"\x80\x02}", "damaged description"),
    "empty stack": (b"\x80\x02\x85.", "damaged description"),
    "transposed": (table({"a": tensor("0", "F32", (3, 4), (1, 3))}), r"save it \.contiguous\(\)"),
    "too long": (table({"a": tensor("0", "F32", (3, 5))}), "lacks the 60 stored bytes of data/0"),
    "no storage": (table({"a": tensor("1", "F32", (3, 4))}), "lacks the 48 stored bytes of data/1"),
    "negative": (table({"a": tensor("0", "F32", (3, -4))}), "size or an offset out of range"),
}


@pytest.mark.parametrize("case", _PICKLES)
def test_pickles_that_are_no_dictionary_of_tensors(tmp_path: Path, case: str) -> None:
    data, message = _PICKLES[case]
    write_archive(tmp_path / "m.bin", data, STORAGE)
    with pytest.raises(ModelFileError, match=message):
        read_torch_tensors(tmp_path / "m.bin")


def test_a_bomb_of_shared_tuples_costs_no_time(tmp_path: Path) -> None:
    """64 tuples of two of the one before are 2^64 values to whoever prints or hashes them."""
    bomb = b"N" + b"".join(b"q\x00h\x00\x86" for _ in range(64))
    for data in (b"\x80\x02}" + bomb + b"Ns.", table({"a": bomb}), table({"a": bomb + bomb + b"\x93"})):
        write_archive(tmp_path / "m.bin", data, {})
        with pytest.raises(ModelFileError):
            read_torch_tensors(tmp_path / "m.bin")


def test_archives_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "m.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/readme", "x")
    with pytest.raises(ModelFileError, match=r"0 entries data\.pkl"):
        read_torch_tensors(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", table({"a": GOOD}))
        archive.writestr("a/data/0", bytes(4800))
    with pytest.raises(ModelFileError, match=r"lacks the 48 stored bytes"):
        read_torch_tensors(path)
    for order in ("big", "x" * (64 << 20)):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a/data.pkl", table({"a": GOOD}))
            archive.writestr("a/byteorder", order)
        with pytest.raises(ModelFileError, match="big-endian machine"):
            read_torch_tensors(path)
    write_archive(path, table({"a": GOOD}), STORAGE)
    raw = path.read_bytes()
    for size in (3, 40, len(raw) // 2, len(raw) - 1):
        path.write_bytes(raw[:size])
        with pytest.raises(ModelFileError, match=r"zip format|broken archive"):
            read_torch_tensors(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4))
def test_spoilt_archives(tmp_path: Path, edits: list[tuple[int, int]]) -> None:
    path = tmp_path / "m.bin"
    write_archive(path, table({"a": GOOD, "b": tensor("0", "F32", (12,))}), STORAGE)
    raw = bytearray(path.read_bytes())
    for at, value in edits:
        raw[at % len(raw)] = value
    path.write_bytes(raw)
    read_or_refuse(path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_random_pickles(tmp_path: Path, data: bytes) -> None:
    write_archive(tmp_path / "m.bin", b"\x80\x02" + data + b".", STORAGE)
    read_or_refuse(tmp_path / "m.bin")


def read_or_refuse(path: Path) -> None:
    try:
        for entry in read_torch_tensors(path).values():
            assert len(stored_bytes(entry)) == np.prod(entry.shape) * entry.kind.block_bytes
    except ModelFileError as error:
        assert str(path) in str(error)


def test_a_huge_memo_index_costs_nothing(tmp_path: Path) -> None:
    """Python's own unpickler makes room for as many entries as the largest index says."""
    data = b"\x80\x02}r" + struct.pack("<I", 0xFFFFFFFF) + b"."
    write_archive(tmp_path / "m.bin", data, {})
    assert read_torch_tensors(tmp_path / "m.bin") == {}
