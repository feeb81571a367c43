"""Hidden states of a forward: the numbers of the right layers, and the same bits in any batch."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paceline.executors.cpu import ISA_VARIABLE, CpuExecutor, available_paths
from paceline.records import FloatArray
from paceline.tree import TokenTree
from support.native_batches import Rows, batch_of, int32, load_executor, open_gguf, run
from support.reference_decoder import ReferenceDecoder
from support.tiny_models import TINY_VARIANTS, write_tiny_gguf, write_tiny_hf
from support.tiny_tokenizer import VOCAB_SIZE

BLOCKS = tuple(range(12))


def _tokens(count: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(int(t) for t in np.random.default_rng(seed).integers(0, VOCAB_SIZE, count))


def _states(executor: CpuExecutor, rows: Rows, layers: list[int]) -> FloatArray:
    return executor.forward_with_states(batch_of(rows), layers)[1]


@pytest.mark.parametrize("path", available_paths())
@pytest.mark.parametrize("arch", TINY_VARIANTS)
@pytest.mark.parametrize("count", [3, 100], ids=["replicated", "shared"])
def test_states_equal_the_float64_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: str, path: str, count: int
) -> None:
    """In any order of layers, id L included. Gemma's post-norms belong to the state behind a layer."""
    monkeypatch.setenv(ISA_VARIABLE, path)
    file = write_tiny_gguf(tmp_path / "m.gguf", arch)
    tokens = _tokens(count)
    executor = load_executor(file, float32=True, cache_type="float32")
    layers = list(range(executor.spec.num_layers, -1, -1))
    got = _states(executor, Rows(tokens, 0, BLOCKS), layers)
    spec, source = open_gguf(file)
    with closing(source):
        states = ReferenceDecoder(spec, source).hidden_states(list(tokens))
    expected = np.concatenate([states[layer] for layer in layers], axis=1)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 2e-5 * np.abs(expected).max()


@pytest.mark.reference
@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_states_equal_what_transformers_calls_hidden_states(tmp_path: Path, arch: str) -> None:
    """``hidden_states[i]`` is the input of layer i there; the last one is normed and has no counterpart."""
    torch = pytest.importorskip("torch")
    from support.transformers_models import model_of_folder

    tokens = _tokens(80)
    executor = load_executor(write_tiny_gguf(tmp_path / "m.gguf", arch), float32=True, cache_type="float32")
    layers = list(range(executor.spec.num_layers))
    got = _states(executor, Rows(tokens, 0, BLOCKS), layers)
    with torch.inference_mode():
        model = model_of_folder(write_tiny_hf(tmp_path / "hf", arch))
        states = model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    expected = np.concatenate([states[layer][0].numpy() for layer in layers], axis=1)
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("path", available_paths())
@pytest.mark.parametrize(("arch", "ggml_type"), [("llama", "q4_1"), ("gemma3", "q8_0"), ("qwen3", "bf16")])
def test_states_of_a_row_are_the_same_bits_in_any_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: str, ggml_type: str, path: str
) -> None:
    """One pass, one token at a time, chunks, and the nodes of a tree against their chain."""
    monkeypatch.setenv(ISA_VARIABLE, path)
    executor = load_executor(write_tiny_gguf(tmp_path / "m.gguf", arch, ggml_type))
    layers = [0, 1, executor.spec.num_layers]
    tokens = _tokens(90)
    whole = _states(executor, Rows(tokens, 0, BLOCKS), layers)
    for size in (1, 7, 40):
        pieces = [
            _states(executor, Rows(tokens[i : i + size], i, BLOCKS), layers) for i in range(0, 90, size)
        ]
        assert np.concatenate(pieces).tobytes() == whole.tobytes(), size
    tree = TokenTree((tokens[61], 5, tokens[62], 6), (-1, -1, 0, 2))
    nodes = _states(executor, Rows(tokens[60:61], 60, BLOCKS, tree), layers)
    assert nodes[[0, 1, 3]].tobytes() == whole[60:63].tobytes()


def test_logits_are_those_of_a_plain_forward_and_states_need_none(tmp_path: Path) -> None:
    executor = load_executor(write_tiny_gguf(tmp_path / "m.gguf", "gemma2", "q4_k"))
    batch = batch_of(Rows(_tokens(30), 0, BLOCKS))
    plain = executor.forward(batch).copy()
    logits, states = executor.forward_with_states(batch, [0, 2])
    assert logits.tobytes() == plain.tobytes()
    none, alone = executor.forward_with_states(replace(batch, logit_rows=int32([])), [0, 2])
    assert none.shape == (0, VOCAB_SIZE)
    assert alone.tobytes() == states.tobytes()


def test_batches_longer_than_one_pass_return_all_states(tmp_path: Path) -> None:
    executor = load_executor(write_tiny_gguf(tmp_path / "m.gguf", "llama", "q8_0"), num_blocks=130)
    tokens = _tokens(900)
    split = _states(executor, Rows(tokens, 0, tuple(range(65))), [1, 2])
    blocks = tuple(range(65, 130))
    halves = [_states(executor, Rows(tokens[a:b], a, blocks), [1, 2]) for a, b in ((0, 450), (450, 900))]
    assert split.tobytes() == np.concatenate(halves).tobytes()


def test_the_last_id_of_a_shallow_executor_is_its_own_last_layer(tmp_path: Path) -> None:
    executor = load_executor(write_tiny_gguf(tmp_path / "m.gguf", "gemma3", "q8_0"))
    rows = Rows(_tokens(20), 0, BLOCKS)
    deep = _states(executor, rows, [1])
    shallow = executor.first_layers(1, num_blocks=12)
    assert isinstance(shallow, CpuExecutor)
    assert _states(shallow, rows, [1]).tobytes() == deep.tobytes()
    assert run(executor, rows).shape == (20, VOCAB_SIZE)
