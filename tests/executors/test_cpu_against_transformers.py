"""The native executor against transformers in float32 on the same, dequantised weights.

In float32 the two agree to rounding; with quantised products, perplexity stays where it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.executors.cpu import CpuExecutor
from paceline.models.loading import load_model_files
from support.native_batches import Rows, batch_of, load_executor, run
from support.perplexity import documentation_text, log_losses
from support.tiny_models import TINY_VARIANTS, write_tiny_gguf, write_tiny_hf
from support.tiny_tokenizer import VOCAB_SIZE
from support.transformers_models import logits_of, model_of_folder, model_of_gguf

pytestmark = pytest.mark.reference

WINDOW = 1000
NUM_TOKENS = 5000
CHUNK = 250
BLOCKS = tuple(range(WINDOW // CpuExecutor.block_size + 1))


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def _windows(path: Path) -> list[list[int]]:
    """Return 5,000 tokens of text in windows, each behind a BOS where the model wants one."""
    with load_model_files(path) as model:
        tokens = model.tokenizer.encode(documentation_text(5 * NUM_TOKENS), add_bos=False)
        start = [model.tokenizer.bos_token_id] if model.tokenizer.adds_bos else []
    assert len(tokens) >= NUM_TOKENS
    return [[*start, *tokens[i : i + WINDOW]] for i in range(0, NUM_TOKENS, WINDOW)]


def _relative_error(got: Any, expected: Any) -> float:
    """Return the largest error of any row, relative to that row's largest logit."""
    return float((np.abs(got - expected).max(axis=1) / np.abs(expected).max(axis=1)).max())


@pytest.mark.parametrize("arch", TINY_VARIANTS)
def test_float32_logits_equal_transformers(tmp_path: Path, arch: str) -> None:
    tokens = np.random.default_rng(3).integers(0, VOCAB_SIZE, 200).tolist()  # past every tiny window
    executor = load_executor(write_tiny_gguf(tmp_path / "m.gguf", arch), float32=True, cache_type="float32")
    got = run(executor, Rows(tuple(tokens), 0, BLOCKS[:24]))
    expected = logits_of(model_of_folder(write_tiny_hf(tmp_path / "hf", arch)), tokens).numpy()
    assert _relative_error(got, expected) <= 1e-3


@pytest.mark.parametrize("ggml_type", ["q4_0", "q4_1", "q8_0", "q4_k", "q6_k"])
def test_float32_logits_equal_transformers_for_quantised_files(tmp_path: Path, ggml_type: str) -> None:
    tokens = np.random.default_rng(4).integers(0, VOCAB_SIZE, 100).tolist()
    executor = load_executor(
        write_tiny_gguf(tmp_path / "m.gguf", "llama", ggml_type), float32=True, cache_type="float32"
    )
    got = run(executor, Rows(tuple(tokens), 0, BLOCKS[:24]))
    expected = logits_of(model_of_folder(write_tiny_hf(tmp_path / "hf", "llama", ggml_type)), tokens).numpy()
    assert _relative_error(got, expected) <= 1e-3


@pytest.mark.real_model
@pytest.mark.parametrize("model", ["smollm2_path", "gemma3_path"])
def test_real_model_agrees_with_transformers(request: pytest.FixtureRequest, model: str) -> None:
    """Logits in float32 within 1e-3, and the quantised path's perplexity within 1 %."""
    path: Path = request.getfixturevalue(model)
    windows = _windows(path)
    reference = model_of_gguf(path)
    _check_float32_logits(path, reference, windows[1][:600])
    expected = np.concatenate([log_losses(logits_of(reference, window), window) for window in windows])
    del reference
    got = _native_losses(load_executor(path, num_blocks=len(BLOCKS)), windows)
    change = float(np.exp(got.mean() - expected.mean())) - 1
    print(f"{path.name}: perplexity {np.exp(expected.mean()):.4f}, quantised {change:+.3%}")
    assert abs(change) <= 0.01


def _check_float32_logits(path: Path, reference: Any, tokens: list[int]) -> None:
    """600 tokens reach past Gemma's window of 512."""
    executor = load_executor(path, num_blocks=len(BLOCKS), float32=True, cache_type="float32")
    expected = logits_of(reference, tokens).numpy()
    for start in range(0, len(tokens), CHUNK):
        got = executor.forward(batch_of(Rows(tuple(tokens[start : start + CHUNK]), start, BLOCKS)))
        assert _relative_error(got, expected[start : start + CHUNK]) <= 1e-3


def _native_losses(executor: CpuExecutor, windows: list[list[int]]) -> Any:
    import torch

    losses = []
    for window in windows:
        for start in range(0, len(window), CHUNK):
            rows = Rows(tuple(window[start : start + CHUNK]), start, BLOCKS)
            logits = torch.from_numpy(executor.forward(batch_of(rows)))
            losses.append(log_losses(logits, window[start : start + CHUNK + 1]))
    return np.concatenate(losses)
