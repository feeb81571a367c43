"""The native executor gives the right numbers: weights, float32 and quantised forwards, on every path."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from paceline.executors.cpu import ISA_VARIABLE, available_paths
from paceline.executors.native_model import native_model
from paceline.models.spec import ModelSpec, TensorSource
from paceline.native import _core
from support.native_batches import Rows, load_executor, open_gguf, run
from support.quantised_decoder import QuantisedDecoder
from support.reference_decoder import ReferenceDecoder, dequantised
from support.tiny_models import TINY_ARCHITECTURES, TINY_VARIANTS, write_tiny_gguf
from support.tiny_tokenizer import VOCAB_SIZE

TYPES = ("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k")
BLOCKS = tuple(np.random.default_rng(5).permutation(24).tolist())
WEIGHTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def _tokens(count: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(int(t) for t in np.random.default_rng(seed).integers(0, VOCAB_SIZE, count))


@pytest.mark.parametrize("ggml_type", TYPES)
@pytest.mark.parametrize("float32", [False, True])
def test_repacked_weights_dequantise_to_the_reference_bit_for_bit(
    tmp_path: Path, ggml_type: str, float32: bool
) -> None:
    spec, source = open_gguf(write_tiny_gguf(tmp_path / "m.gguf", "llama", ggml_type))
    with closing(source):
        _check_weights(native_model(spec, source, float32=float32), spec, source)


def _check_weights(model: _core.Model, spec: ModelSpec, source: TensorSource) -> None:
    names = [(-1, "token_embd", "token_embd.weight"), (-1, "output", "output.weight")]
    names += [
        (layer, name, f"blk.{layer}.{name}.weight") for layer in range(spec.num_layers) for name in WEIGHTS
    ]
    for layer, short, full in names:
        expected = dequantised(source, full)
        row = np.empty(expected.shape[1], np.float32)
        for index in range(len(expected)):
            model.dequantize_row(layer, short, index, row)
            assert row.tobytes() == expected[index].tobytes(), (full, index)


@pytest.mark.parametrize("path", available_paths())
@pytest.mark.parametrize("arch", TINY_VARIANTS)
def test_float32_logits_equal_the_float64_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: str, path: str
) -> None:
    monkeypatch.setenv(ISA_VARIABLE, path)
    file = write_tiny_gguf(tmp_path / "m.gguf", arch)
    tokens = _tokens(100)  # past a block, a chunk of 64 and every tiny window
    got = run(load_executor(file, float32=True, cache_type="float32"), Rows(tokens, 0, BLOCKS))
    spec, source = open_gguf(file)
    with closing(source):
        expected = ReferenceDecoder(spec, source).logits(list(tokens))
    assert np.abs(got - expected).max() <= 2e-5 * np.abs(expected).max()


@pytest.mark.skipif("amx" not in available_paths(), reason="no tile registers here")
@pytest.mark.parametrize("ggml_type", TYPES)
def test_tiles_give_the_bits_of_the_path_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ggml_type: str
) -> None:
    """Regimes: every number of rows up to more than a block, so products of two groups at once and of one."""
    file = write_tiny_gguf(tmp_path / "m.gguf", "llama", ggml_type)
    logits = {}
    for path in ("amx", "avx512"):
        monkeypatch.setenv(ISA_VARIABLE, path)
        executor = load_executor(file)
        assert executor.path == path
        logits[path] = [run(executor, Rows(_tokens(count), 0, BLOCKS)) for count in range(1, 40)]
    for count, (tiles, dots) in enumerate(zip(logits["amx"], logits["avx512"], strict=True), start=1):
        assert tiles.tobytes() == dots.tobytes(), count


@pytest.mark.parametrize("path", available_paths())
@pytest.mark.parametrize("ggml_type", TYPES)
def test_quantised_logits_equal_the_readable_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ggml_type: str, path: str
) -> None:
    """Regimes: 1 row, a few rows (replicated), a block and more than a block of rows, every storage type.

    An activation on the edge between two int8 codes may fall to either side of it, and then everything behind
    it in the context shifts a little. So rows stand alone here (one token each): most must agree to
    rounding error, and those that met an edge stay close.
    """
    monkeypatch.setenv(ISA_VARIABLE, path)
    file = write_tiny_gguf(tmp_path / "m.gguf", "llama", ggml_type)
    executor = load_executor(file, cache_type="float32", num_blocks=40)
    spec, source = open_gguf(file)
    with closing(source):
        reference = QuantisedDecoder(spec, source)
        errors: list[float] = []
        for count in (1, 3, 16, 37):
            tokens = _tokens(count, seed=count)
            got = run(executor, *(Rows((token,), 0, (block,)) for block, token in enumerate(tokens)))
            expected = np.concatenate([reference.logits([token]) for token in tokens])
            errors += (np.abs(got - expected) / np.abs(expected).max()).max(axis=1).tolist()
    assert np.median(errors) <= 1e-6 and max(errors) <= 5e-2, sorted(errors)


@pytest.mark.parametrize("arch", TINY_ARCHITECTURES)
def test_half_precision_cache_changes_little(tmp_path: Path, arch: str) -> None:
    file = write_tiny_gguf(tmp_path / "m.gguf", arch)
    rows = Rows(_tokens(60), 0, BLOCKS)
    full = run(load_executor(file, float32=True, cache_type="float32"), rows)
    half = run(load_executor(file, float32=True), rows)
    assert not np.array_equal(full, half)
    assert np.abs(full - half).max() <= 2e-2 * np.abs(full).max()
