"""Spoil good model files at random: the loader answers with a typed error or a model, nothing else."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.errors import PacelineError
from paceline.models.loading import load_model_files
from support.tiny_models import TINY_ARCHITECTURES, write_tiny_gguf, write_tiny_hf

MEMORY_LIMIT = 64 << 20
"""Bytes a load may take; the files have less than 1 MB."""

Edit = tuple[int, bytes, int]
EDITS = st.lists(
    st.tuples(
        st.integers(0, 1 << 20),
        st.sampled_from([b"\xff", b"\0", b"\x01", b"\xff" * 8, bytes(8), (1 << 60).to_bytes(8, "little")])
        | st.binary(min_size=1, max_size=16),
        st.sampled_from([0, 1, 2]),
    ),
    min_size=1,
    max_size=4,
)
FUZZ = settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def spoilt(raw: bytes, edits: list[Edit], reach: int) -> bytes:
    """Overwrite (0), insert (1) or cut out (2) bytes within the first ``reach``."""
    data = bytearray(raw)
    for position, piece, how in edits:
        at = position % min(reach, max(len(data), 1))
        end = at + (len(piece) if how != 1 else 0)
        data[at:end] = b"" if how == 2 else piece
    return bytes(data)


def load_and_use(path: Path) -> None:
    """Load a model, and read one tensor and some text where it loads."""
    tracemalloc.start()
    try:
        with load_model_files(path) as model:
            model.source.read_rows("token_embd.weight", 0, 1)
            ids = model.tokenizer.encode("Hello <|im_end|> 123\n")
            model.tokenizer.decode(ids)
            if model.chat_template_text is not None:
                model.chat_template.encode([{"role": "user", "content": "hi <|im_end|>"}])
    except PacelineError as error:
        assert str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MEMORY_LIMIT


@pytest.mark.parametrize("arch", TINY_ARCHITECTURES)
def test_spoilt_gguf_headers(tmp_path: Path, arch: str) -> None:
    raw = write_tiny_gguf(tmp_path / "good.gguf", arch, "q4_0").read_bytes()
    path = tmp_path / "bad.gguf"

    @settings(FUZZ, max_examples=80)
    @given(EDITS, st.sampled_from([200, 2000, 12000]))
    def run(edits: list[Edit], reach: int) -> None:
        path.write_bytes(spoilt(raw, edits, reach))
        load_and_use(path)

    run()


@given(st.binary(max_size=300))
@FUZZ
def test_random_bytes_behind_the_magic(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "random.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0" + tail)
    load_and_use(path)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
)
def test_spoilt_folders(tmp_path: Path, name: str) -> None:
    folder = write_tiny_hf(tmp_path / "folder", "phi3")
    raw = (folder / name).read_bytes()

    @settings(FUZZ, max_examples=80)
    @given(EDITS)
    def run(edits: list[Edit]) -> None:
        (folder / name).write_bytes(spoilt(raw, edits, 3000))
        load_and_use(folder)

    run()


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def test_config_fields_of_any_kind(tmp_path: Path) -> None:
    """Each field of config.json may be replaced by any JSON value."""
    import json

    folder = write_tiny_hf(tmp_path / "folder", "phi3")
    config = json.loads((folder / "config.json").read_text())

    @settings(FUZZ, max_examples=200)
    @given(st.sampled_from([*config, "layer_types", "rope_parameters", "eos_token_id"]), JSON_VALUES)
    def run(field: str, value: object) -> None:
        (folder / "config.json").write_text(json.dumps({**config, field: value}))
        load_and_use(folder)

    run()
