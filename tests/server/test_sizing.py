"""The memory formula of docs/operations.md: its parts are what is taken, its example is measured."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from paceline import LLM
from paceline.models.spec import ModelSpec
from support.tiny_models import TINY_ARCHITECTURES, write_tiny_gguf, write_tiny_hf

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
MEASURE = """
import json, sys
from paceline import LLM, SamplingParams
from paceline.server.app import create_app
from paceline.server.settings import ServerSettings

def resident():
    from pathlib import Path
    import os
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

llm = LLM(sys.argv[1], "auto", threads=2, max_model_len=2048, kv_cache_tokens=2048)
create_app(llm, ServerSettings(model_names=("a",)))
prompt = [13 * j % 49000 + 10 for j in range(2030)]
llm.generate([prompt], SamplingParams(max_tokens=8, temperature=0, ignore_eos=True), use_tqdm=False)
(head,) = llm._heads.values()
spec, executor = llm.executor.spec, llm.executor
print(json.dumps({
    "layers": spec.num_layers, "kv_heads": spec.num_kv_heads, "head_dim": spec.head_dim,
    "vocab": spec.vocab_size, "tokens": executor.num_blocks * executor.block_size,
    "weights": executor.weight_bytes, "cache": executor.cache_bytes,
    "head_weights": head.executor.weight_bytes, "resident": resident(),
    "head_block": head.executor.cache_bytes // head.executor.num_blocks,
    "more_blocks": head.executor.num_blocks - executor.num_blocks,
}))
"""


def cache_bytes_per_token(layers: int, kv_heads: int, head_dim: int) -> int:
    """The formula: keys and, padded to 16 values, values, in 16-bit floats."""
    padded = -(-head_dim // 16) * 16
    return layers * kv_heads * (head_dim + padded) * 2


def of_spec(spec: ModelSpec) -> int:
    return cache_bytes_per_token(spec.num_layers, spec.num_kv_heads, spec.head_dim)


@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
def test_the_cache_takes_what_the_formula_says(tmp_path: Path, architecture: str) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", architecture, "q8_0", seed=1)
    for tokens in (256, 1024):
        llm = LLM(path, "none", threads=1, max_model_len=256, kv_cache_tokens=tokens)
        assert llm.executor.cache_bytes == tokens * of_spec(llm.executor.spec)


@pytest.mark.parametrize(("quant", "bytes_each"), [("q8", 1.1), ("q4", 0.6)])
def test_quantised_weights_take_what_the_guide_says(tmp_path: Path, quant: Any, bytes_each: float) -> None:
    folder = write_tiny_hf(tmp_path / "tiny", "llama", "q4_k", seed=1)
    number = sum(v.size for path in folder.glob("*.safetensors") for v in load_file(path).values())
    llm = LLM(folder, "none", threads=1, quant=quant)
    assert llm.executor.weight_bytes / number == pytest.approx(bytes_each, rel=0.1)
    assert "`--quant q8`: 1.1 bytes per weight of a folder, `q4`: 0.6" in GUIDE.read_text("utf-8")


def stated(name: str) -> float:
    """Return the number of megabytes that the guide's example states for a part."""
    found = re.search(rf"^\| {name} \|.*\| ([0-9.,]+) MB \|$", GUIDE.read_text("utf-8"), re.MULTILINE)
    assert found, name
    return float(found[1].replace(",", ""))


@pytest.mark.real_model
def test_the_worked_example_is_measured(smollm2_path: Path) -> None:
    """A served SmolLM2 whose cache is full has the resident memory of the example, within 12 % of its sum.

    Measured with a cache of 2,048 tokens in place of 8,192, so that it is soon full.
    """
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, str(smollm2_path)], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    per_token = cache_bytes_per_token(found["layers"], found["kv_heads"], found["head_dim"])
    assert found["cache"] == per_token * found["tokens"] == per_token * 2048
    assert f"{per_token:,} bytes" in GUIDE.read_text("utf-8")
    assert stated("weights") == pytest.approx(found["weights"] / 1e6, rel=0.02)
    assert stated("cache") == pytest.approx(8192 * per_token / 1e6, rel=0.01)
    head = found["head_weights"] + found["head_block"] * (8192 // 16 + found["more_blocks"])
    assert stated("draft head") == pytest.approx(head / 1e6, rel=0.05)
    assert stated("logits") == pytest.approx(64 * found["vocab"] * 4 / 1e6, rel=0.01)
    parts = ("program and tokenizer", "weights", "cache", "draft head", "logits", "what drafters learn")
    assert stated("together") == pytest.approx(sum(map(stated, parts)), abs=1)
    not_yet = stated("what drafters learn") + stated("logits") + (8192 - 2048) * per_token / 1e6
    assert found["resident"] / 1e6 == pytest.approx(stated("together") - not_yet, rel=0.12)
