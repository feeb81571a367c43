"""The GGUF header parser: equal to gguf's own reader, quick, small, and not to be fooled."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from paceline.errors import ModelFileError, ModelNotFoundError
from paceline.models.ggml_types import GGML_TYPES, GgmlType, ggml_type_named
from paceline.models.gguf_file import is_gguf, read_gguf_header
from paceline.models.string_array import StringArray
from support.gguf_bytes import (
    ARRAY,
    STRING,
    U32,
    Header,
    array_entry,
    string_entry,
    tensor_entry,
    text,
    u32_entry,
)
from support.tiny_models import TINY_VARIANTS, write_tiny_gguf


def assert_equals_gguf_reader(path: Path) -> None:
    """Every key, value, shape, type and offset that ``gguf.GGUFReader`` finds is found, and no more."""
    reader = gguf.GGUFReader(path)
    header = read_gguf_header(path)
    expected = {name: item for name, item in reader.fields.items() if not name.startswith("GGUF.")}
    assert list(header.metadata) == list(expected)
    for name, item in expected.items():
        ours = header.metadata[name]
        theirs = item.contents()
        if isinstance(ours, StringArray | np.ndarray):
            assert list(ours) == list(theirs), name
        else:
            assert ours == theirs and type(ours) is type(theirs), name
    assert list(header.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        ours_tensor = header.tensors[tensor.name]
        assert ours_tensor.shape == tuple(reversed(tensor.shape.tolist()))
        assert ours_tensor.ggml_type == tensor.tensor_type
        assert ours_tensor.offset == tensor.data_offset
        assert ours_tensor.size == tensor.n_bytes
    assert header.data_offset == reader.data_offset


@pytest.mark.parametrize("arch", TINY_VARIANTS)
def test_parity_with_gguf_reader(tmp_path: Path, arch: str) -> None:
    assert_equals_gguf_reader(write_tiny_gguf(tmp_path / "tiny.gguf", arch, "q8_0"))


@pytest.mark.parametrize("kind", GGML_TYPES.values(), ids=lambda kind: kind.name)
def test_parity_for_every_storage_type(tmp_path: Path, kind: GgmlType) -> None:
    assert_equals_gguf_reader(write_tiny_gguf(tmp_path / "tiny.gguf", "llama", kind.name))


@pytest.mark.real_model
@pytest.mark.parametrize("model", ["smollm2_path", "gemma3_path"])
def test_parity_on_real_files(request: pytest.FixtureRequest, model: str) -> None:
    assert_equals_gguf_reader(request.getfixturevalue(model))


_MEASURE = """
import sys, time
from pathlib import Path
from paceline.models.gguf_file import read_gguf_header
def peak():  # ru_maxrss of a child process starts at its parent's
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before, start = peak(), time.perf_counter()
read_gguf_header(Path(sys.argv[1]))
print(time.perf_counter() - start, peak() - before)
"""


@pytest.mark.real_model
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize(
    ("model", "seconds", "kib"), [("smollm2_path", 0.25, 12e3), ("gemma3_path", 1.0, 40e3)]
)
def test_reading_a_real_header_costs_little(
    request: pytest.FixtureRequest, model: str, seconds: float, kib: float
) -> None:
    """gguf.GGUFReader took 2.3 s and 10.6 s and over 100 MB here (docs/adr/0005)."""
    command = [sys.executable, "-c", _MEASURE, str(request.getfixturevalue(model))]
    runs = [
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() for _ in range(3)
    ]
    assert min(float(run[0]) for run in runs) < seconds
    assert min(int(run[1]) for run in runs) < kib


def test_type_table_equals_ggufs() -> None:
    for kind in GGML_TYPES.values():
        theirs = gguf.GGMLQuantizationType[kind.name]
        assert theirs.value == kind.number
        assert gguf.GGML_QUANT_SIZES[theirs] == (kind.block_size, kind.block_bytes)
    assert ggml_type_named("q4_k").row_bytes(512) == 288
    with pytest.raises(ValueError, match="blocks of 256"):
        ggml_type_named("Q4_K").row_bytes(255)
    with pytest.raises(KeyError):
        ggml_type_named("q9")


def test_strings_are_decoded_on_demand(tmp_path: Path) -> None:
    words = ["", "a", "äö", "日本語", "🙂" * 50]
    entry = array_entry("words", STRING, len(words), b"".join(map(text, words)))
    path = tmp_path / "m.gguf"
    path.write_bytes(Header(entries=[entry]).build())
    array = read_gguf_header(path).metadata["words"]
    assert isinstance(array, StringArray)
    assert list(array) == words and len(array) == 5
    assert [array[i] for i in range(-5, 5)] == words + words
    assert array[1:3] == words[1:3] and array.raw(2) == "äö".encode()
    for index in (5, -6):
        with pytest.raises(IndexError):
            array[index]


def test_header_longer_than_the_read_ahead(tmp_path: Path) -> None:
    """Strings of the second megabyte are read on demand, also where one lies across the border."""
    words = [f"{n:0>100}" for n in range(30000)]
    entry = array_entry("words", STRING, len(words), b"".join(map(text, words)))
    path = tmp_path / "m.gguf"
    path.write_bytes(Header(entries=[entry, u32_entry("after", 7)]).build())
    metadata = read_gguf_header(path).metadata
    assert list(metadata["words"]) == words  # type: ignore[arg-type]
    assert metadata["after"] == 7


Spoil = Callable[[Header], object]
_HUGE = 1 << 60
_CASES: dict[str, tuple[Spoil, str]] = {
    "wrong magic": (lambda h: setattr(h, "magic", b"GGML"), "not a GGUF file"),
    "version 1": (lambda h: setattr(h, "version", 1), "version 1; versions 2 and 3"),
    "version 0": (lambda h: setattr(h, "version", 0), "version 0"),
    "big-endian": (lambda h: setattr(h, "version", 3 << 24), "big-endian"),
    "2^60 tensors": (lambda h: setattr(h, "tensor_count", _HUGE), "tensor count of 1152921504606846976"),
    "2^60 keys": (lambda h: setattr(h, "entry_count", _HUGE), "metadata count"),
    "2^64 - 1 keys": (lambda h: setattr(h, "entry_count", (1 << 64) - 1), "metadata count"),
    "one key too many": (lambda h: setattr(h, "entry_count", 2), "m.gguf "),
    "one tensor too many": (lambda h: setattr(h, "tensor_count", 2), "m.gguf "),
    "a key of 2^60 bytes": (
        lambda h: h.entries.append((1 << 60).to_bytes(8, "little") + b"x"),
        "length of 1152921504606846976",
    ),
    "a string of 200 MB": (
        lambda h: h.entries.append(text("k") + (8).to_bytes(4, "little") + (200 << 20).to_bytes(8, "little")),
        "too few for k",
    ),
    "a key that is no UTF-8": (
        lambda h: h.entries.append(text(b"\xff") + bytes(8)),
        "invalid UTF-8 in key 1",
    ),
    "a key twice": (lambda h: h.entries.extend([u32_entry("k", 1)] * 2), "key 'k' twice"),
    "an unknown value type": (lambda h: h.entries.append(text("k") + b"\x63\0\0\0"), "unknown value type 99"),
    "an unknown element type": (
        lambda h: h.entries.append(array_entry("k", 99, 1, bytes(8))),
        "elements of 'k' the unknown type 99",
    ),
    "an array of 2^60 numbers": (lambda h: h.entries.append(array_entry("k", U32, _HUGE, b"")), "array 'k'"),
    "an array of 2^60 strings": (
        lambda h: h.entries.append(array_entry("k", STRING, _HUGE, b"")),
        "1152921504606846976 strings of 'k'",
    ),
    "an array string of 2^60": (
        lambda h: h.entries.append(array_entry("k", STRING, 1, _HUGE.to_bytes(8, "little"))),
        "too few for k",
    ),
    "an array in an array": (
        lambda h: h.entries.append(array_entry("k", ARRAY, 1, bytes(16))),
        "nests an array",
    ),
    "a tensor twice": (lambda h: h.tensors.append(tensor_entry("a", offset=128)), "tensor 'a' twice"),
    "no dimensions": (lambda h: h.tensors.append(tensor_entry("b", ())), "0 dimensions"),
    "five dimensions": (lambda h: h.tensors.append(tensor_entry("b", (1,) * 5)), "5 dimensions"),
    "a dimension of zero": (lambda h: h.tensors.append(tensor_entry("b", (4, 0))), r"empty shape \(0, 4\)"),
    "dimensions of 2^63": (lambda h: h.tensors.append(tensor_entry("b", (1 << 63, 1 << 63))), "ends at byte"),
    "an unknown tensor type": (lambda h: h.tensors.append(tensor_entry("b", kind=77)), "type number 77"),
    "a known type that is not supported": (
        lambda h: h.tensors.append(tensor_entry("b", kind=20)),
        "type IQ4_NL",
    ),
    "half a block": (lambda h: h.tensors.append(tensor_entry("b", (48,), 2)), "Q4_0 blocks of 32"),
    "an offset past the end": (lambda h: h.tensors.append(tensor_entry("b", offset=1 << 40)), "truncated"),
    "an offset just past the end": (
        lambda h: h.tensors.append(tensor_entry("b", (33,), offset=3968)),
        "truncated",
    ),
    "an offset of 2^64 - 32": (
        lambda h: h.tensors.append(tensor_entry("b", offset=(1 << 64) - 32)),
        "truncated",
    ),
    "an odd offset": (lambda h: h.tensors.append(tensor_entry("b", offset=129)), "not 32-aligned"),
    "overlapping tensors": (lambda h: h.tensors.append(tensor_entry("b", offset=96)), "'a' and 'b' overlap"),
    "alignment 0": (lambda h: h.entries.append(u32_entry("general.alignment", 0)), "general.alignment = 0"),
    "alignment 24": (lambda h: h.entries.append(u32_entry("general.alignment", 24)), "a power of two"),
    "alignment 'x'": (lambda h: h.entries.append(string_entry("general.alignment", "x")), "power of two"),
    "a long tensor name": (lambda h: h.tensors.append(tensor_entry("n" * 65)), "at most 64"),
    "no data": (lambda h: setattr(h, "data", b""), "truncated or corrupt, download it again"),
}


@pytest.mark.parametrize("case", _CASES)
def test_hostile_headers_are_refused(tmp_path: Path, case: str) -> None:
    spoil, message = _CASES[case]
    header = Header()
    path = tmp_path / "m.gguf"
    path.write_bytes(header.build())
    read_gguf_header(path)  # right before it is spoilt
    spoil(header)
    path.write_bytes(header.build())
    with pytest.raises(ModelFileError, match=message):
        read_gguf_header(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = write_tiny_gguf(tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    for length in itertools.chain(range(0, 400), range(400, len(whole) - 1, 997), [len(whole) - 1]):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFileError):
            read_gguf_header(path)


def test_other_files_and_no_files(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no model file '.*absent.gguf'"):
        read_gguf_header(tmp_path / "absent.gguf")
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_gguf_header(tmp_path)
    (tmp_path / "empty.gguf").write_bytes(b"")
    with pytest.raises(ModelFileError, match="not a GGUF file"):
        read_gguf_header(tmp_path / "empty.gguf")
    assert not is_gguf(tmp_path / "empty.gguf")
    assert is_gguf(write_tiny_gguf(tmp_path / "tiny.gguf"))
