"""From metadata to ModelSpec: architectures, rope scaling, and one message about all wrong tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from paceline.errors import ModelFileError
from paceline.models.gguf_file import read_gguf_header
from paceline.models.gguf_spec import load_gguf_spec
from paceline.models.spec import ModelSpec
from support import tiny_models as tiny
from support.tiny_models import write_tiny_gguf


def load(path: Path, max_context: int | None = None) -> ModelSpec:
    spec, source = load_gguf_spec(read_gguf_header(path), max_context)
    source.close()
    return spec


def rewrite(path: Path, change: Callable[[dict[str, object], dict[str, np.ndarray]], None]) -> Path:
    """Copy a tiny float32 file with changed metadata and tensors."""
    header = read_gguf_header(path)
    metadata = {key: value for key, value in header.metadata.items() if key != "general.architecture"}
    raw = path.read_bytes()
    tensors = {
        name: np.frombuffer(raw, np.float32, t.size // 4, t.offset).reshape(t.shape)
        for name, t in header.tensors.items()
    }
    change(metadata, tensors)
    architecture = metadata.pop("architecture", header.metadata["general.architecture"])
    writer = gguf.GGUFWriter(path.with_suffix(".changed.gguf"), architecture)
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value.tolist() if isinstance(value, np.ndarray) else list(value))
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.with_suffix(".changed.gguf")


@pytest.mark.parametrize("arch", tiny.TINY_ARCHITECTURES)
def test_dimensions(tmp_path: Path, arch: str) -> None:
    shape = tiny.tiny_shape(arch)
    spec = load(write_tiny_gguf(tmp_path / "m.gguf", arch))
    assert (spec.num_layers, spec.hidden_size, spec.ffn_size) == (
        shape.num_layers,
        shape.hidden_size,
        shape.ffn_size,
    )
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim) == (
        shape.num_heads,
        shape.num_kv_heads,
        shape.head_dim,
    )
    assert spec.tied_head == shape.tied and spec.name == f"tiny {arch}"
    assert spec.has_qkv_bias == (arch == "qwen2")
    assert spec.has_qk_norm == (arch in ("qwen3", "gemma3"))
    assert spec.has_post_norms == arch.startswith("gemma")
    assert spec.activation == ("gelu_tanh" if arch.startswith("gemma") else "silu")
    assert spec.embedding_scale == (8.0 if arch.startswith("gemma") else 1.0)
    assert spec.ropes[0].style == ("interleaved" if arch == "llama" else "half_split")
    assert len(spec.ropes[0].inverse_frequencies) == shape.rotated_dims // 2
    assert (spec.attention_softcap, spec.final_softcap) == ((50.0, 30.0) if arch == "gemma2" else (0.0, 0.0))


def test_windows_alternate_as_the_family_does(tmp_path: Path) -> None:
    assert load(write_tiny_gguf(tmp_path / "2.gguf", "gemma2")).layer_windows == (16, 0, 16, 0)
    gemma3 = load(write_tiny_gguf(tmp_path / "3.gguf", "gemma3"))
    assert gemma3.layer_windows == (16, 16, 16, 16, 16, 0, 16)
    assert gemma3.layer_ropes == (1, 1, 1, 1, 1, 0, 1)
    local, main = gemma3.ropes[1].inverse_frequencies, gemma3.ropes[0].inverse_frequencies
    assert local[1] == pytest.approx(10000 ** (-2 / 32)) and main[1] == pytest.approx(1e6 ** (-2 / 32))
    assert load(write_tiny_gguf(tmp_path / "m.gguf", "mistral")).layer_windows == (24, 24)


def test_a_stated_window_pattern_wins(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", "gemma2")
    key = "gemma2.attention.sliding_window_pattern"
    by_period = rewrite(path, lambda metadata, _: metadata.update({key: 4}))
    assert load(by_period).layer_windows == (16, 16, 16, 0)
    by_layer = rewrite(path, lambda metadata, _: metadata.update({key: [False, True, True, False]}))
    assert load(by_layer).layer_windows == (0, 16, 16, 0)
    too_short = rewrite(path, lambda metadata, _: metadata.update({key: [True]}))
    with pytest.raises(ModelFileError, match="an entry for each layer"):
        load(too_short)


def test_a_window_without_its_layers_is_refused(tmp_path: Path) -> None:
    path = rewrite(
        write_tiny_gguf(tmp_path / "m.gguf", "qwen2"),
        lambda metadata, _: metadata.update({"qwen2.attention.sliding_window": 8}),
    )
    with pytest.raises(ModelFileError, match="not which layers have it"):
        load(path)


@pytest.mark.parametrize(("architecture", "layers"), [("gemma2", 46), ("gemma3", 62)])
def test_27b_gemmas_scale_by_width_per_head(tmp_path: Path, architecture: str, layers: int) -> None:
    """No key says so: llama.cpp and we know those two by their number of layers."""

    def deepen(metadata: dict[str, object], tensors: dict[str, np.ndarray]) -> None:
        metadata[f"{architecture}.block_count"] = layers
        first = {name[6:]: values for name, values in tensors.items() if name.startswith("blk.0.")}
        tensors.update({f"blk.{n}.{name}": values for n in range(layers) for name, values in first.items()})

    path = write_tiny_gguf(tmp_path / "m.gguf", architecture)
    assert load(path).attention_scale == pytest.approx(32**-0.5)
    assert load(rewrite(path, deepen)).attention_scale == pytest.approx((64 / 4) ** -0.5)


def test_longrope_chooses_its_factors_by_the_context_asked_for(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", "phi3")
    short, long = tiny.longrope_factors(tiny.tiny_shape("phi3"))
    plain = 10000.0 ** (-np.arange(0, 24, 2) / 24)
    unasked, small, large = load(path), load(path, 100), load(path, 1000)
    assert (unasked.max_context, small.max_context, large.max_context) == (256, 100, 1000)
    assert load(path, 1 << 20).max_context == 1024
    assert np.allclose(unasked.ropes[0].inverse_frequencies, plain / short)
    assert small.ropes == unasked.ropes
    assert np.allclose(large.ropes[0].inverse_frequencies, plain / long)
    assert large.ropes[0].attention_factor == pytest.approx((1 + np.log(4) / np.log(256)) ** 0.5)


def test_max_context_is_lowered_never_raised(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf")
    assert [load(path, wish).max_context for wish in (None, 50, 9999)] == [1024, 50, 1024]


def test_all_wrong_tensors_are_named_at_once(tmp_path: Path) -> None:
    def spoil(metadata: dict[str, object], tensors: dict[str, np.ndarray]) -> None:
        del tensors["blk.1.ffn_up.weight"], tensors["output_norm.weight"]
        tensors["blk.0.attn_q.weight"] = tensors["blk.0.attn_q.weight"][:32]
        tensors["blk.0.extra.weight"] = np.ones(3, np.float32)

    path = rewrite(write_tiny_gguf(tmp_path / "m.gguf"), spoil)
    with pytest.raises(ModelFileError) as caught:
        load(path)
    message = str(caught.value)
    assert "blk.1.ffn_up.weight [96, 64] is missing" in message
    assert "output_norm.weight [64] is missing" in message
    assert "blk.0.attn_q.weight is [32, 64], expected [64, 64]" in message
    assert "blk.0.extra.weight is not known" in message


def test_a_long_list_of_faults_is_cut(tmp_path: Path) -> None:
    path = rewrite(
        write_tiny_gguf(tmp_path / "m.gguf"), lambda metadata, _: metadata.update({"llama.block_count": 9})
    )
    with pytest.raises(ModelFileError, match="and 51 more"):
        load(path)


_LLAMA = {
    "llama.attention.head_count": (0, "llama.attention.head_count = 0, but needs an integer from 1"),
    "llama.attention.head_count_kv": (3, "a divisor of the 4 query heads"),
    "llama.block_count": (100000, "an integer from 1 to 1024"),
    "llama.attention.layer_norm_rms_epsilon": (float("nan"), "finite positive number"),
    "llama.rope.freq_base": (-1.0, "finite positive number"),
    "llama.rope.dimension_count": (7, "an even number"),
    "llama.rope.scaling.type": ("dynamic", "none, linear, yarn"),
    "llama.attention.value_length": (8, "another size than key_length"),
    "llama.expert_count": (8, "mixture of experts"),
    "llama.context_length": ("long", "an integer"),
    "architecture": ("lama", r"architecture 'lama'.* \(did you mean 'llama'\?\)"),
}


@pytest.mark.parametrize("key", _LLAMA)
def test_wrong_values_are_refused(tmp_path: Path, key: str) -> None:
    value, message = _LLAMA[key]
    path = rewrite(write_tiny_gguf(tmp_path / "m.gguf"), lambda metadata, _: metadata.update({key: value}))
    with pytest.raises(ModelFileError, match=message):
        load(path)


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf")
    broken = rewrite(path, lambda metadata, _: metadata.pop("llama.embedding_length"))
    with pytest.raises(ModelFileError, match=r"does not state llama\.embedding_length"):
        load(broken)


def test_rows_are_read_in_any_pieces(tmp_path: Path) -> None:
    for arch in ("llama", "phi3"):
        path = write_tiny_gguf(tmp_path / f"{arch}.gguf", arch, "q4_0")
        _, source = load_gguf_spec(read_gguf_header(path))
        for name, tensor in tiny.tiny_tensors(arch, "q4_0").items():
            info = source.tensors[name]
            assert info.shape == tensor.shape and info.ggml_type == tensor.kind.number
            rows = info.shape[0] if len(info.shape) == 2 else 1
            whole = source.read_rows(name, 0, rows)
            assert whole.tobytes() == tensor.data.tobytes()
            pieces = [source.read_rows(name, row, 1) for row in range(rows)]
            assert b"".join(piece.tobytes() for piece in pieces) == whole.tobytes()
        for start, count in ((-1, 1), (0, 321), (320, 1)):
            with pytest.raises(IndexError):
                source.read_rows("token_embd.weight", start, count)
        source.close()


def test_a_file_cut_while_open_is_an_error(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf")
    _, source = load_gguf_spec(read_gguf_header(path))
    with path.open("r+b") as file:
        file.truncate(20000)
    with pytest.raises(ModelFileError, match="ended inside tensor"):
        source.read_rows("output.weight", 0, 320)
    source.close()
