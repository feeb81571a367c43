"""Synthetic models: real shapes, valid blocks, a tokenizer that works."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from paceline.errors import ConfigError
from paceline.models import synth
from paceline.models.ggml_types import GGML_TYPES, GgmlType
from paceline.models.loading import load_model_files
from paceline.models.random_blocks import random_rows
from paceline.models.synth_shapes import SYNTH_SHAPES, SynthShape
from support.reference_decoder import ReferenceDecoder


@pytest.mark.parametrize("kind", GGML_TYPES.values(), ids=lambda kind: kind.name)
def test_random_blocks_have_the_wanted_spread(kind: GgmlType) -> None:
    """Mean within 6 sigma of zero (65,536 values, false alarm < 1e-8), deviation within a tenth."""
    data = random_rows(kind, 64, 1024, 0.05, np.random.default_rng(1))
    values = gguf.dequantize(data, gguf.GGMLQuantizationType(kind.number))
    assert values.shape == (64, 1024) and np.isfinite(values).all()
    assert abs(values.mean()) < 0.05 * 0.05 and 0.045 < values.std() < 0.055
    assert (random_rows(kind, 64, 1024, 0.05, np.random.default_rng(1)) == data).all()


@pytest.fixture
def small_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes of each family that take milliseconds; one has rows that fill no K block."""
    shapes = {
        name: SynthShape(
            name, 2, 256, 512, 4, 2, 64, 1500, 2048, 10000.0, window=64 if "gemma" in name else 0
        )
        for name in ("llama", "qwen2", "qwen3", "gemma2", "gemma3")
    }
    shapes["phi3"] = SynthShape("phi3", 2, 256, 512, 4, 4, 64, 1500, 2048, 10000.0, tied=False, window=128)
    shapes["llama3"] = SynthShape("llama", 2, 96, 160, 2, 1, 48, 900, 2048, 500000.0, llama3_factor=32.0)
    monkeypatch.setattr(synth, "SYNTH_SHAPES", shapes)


@pytest.mark.usefixtures("small_shapes")
@pytest.mark.parametrize("like", ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "llama3"])
@pytest.mark.parametrize("quant", ["q4_0", "q4_k", "q8_0", "bf16"])
def test_files_load_and_compute(tmp_path: Path, like: str, quant: str) -> None:
    path = synth.write_synthetic_model(like, quant, tmp_path / "m.gguf")
    with load_model_files(path) as model:
        prompt = [{"role": "user", "content": "Hello, wide world! 123"}]
        ids = model.chat_template.encode(prompt)
        assert model.tokenizer.decode(ids, skip_special=False) == model.chat_template.render(prompt)
        assert len(ids) < 40 and max(ids) < model.spec.vocab_size == model.tokenizer.vocab_size
        logits = ReferenceDecoder(model.spec, model.source).logits(ids[:8])
        assert np.isfinite(logits).all() and 0.5 < logits.std() < 10
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("small_shapes")
def test_storage_types_follow_llama_cpps_quantiser(tmp_path: Path) -> None:
    def types(like: str, quant: str) -> dict[str, str]:
        with load_model_files(synth.write_synthetic_model(like, quant, tmp_path / "m.gguf")) as model:
            return {name: GGML_TYPES[info.ggml_type].name for name, info in model.source.tensors.items()}

    wide, narrow = types("llama", "q4_k"), types("llama3", "q4_k")
    assert wide["token_embd.weight"] == "Q6_K" and wide["blk.0.ffn_down.weight"] == "Q4_K"
    assert narrow["token_embd.weight"] == "Q8_0" and narrow["blk.0.ffn_down.weight"] == "Q5_0"
    assert set(types("llama", "q8_0").values()) == {"Q8_0", "F32"}


@pytest.mark.usefixtures("small_shapes")
def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    files = [
        synth.write_synthetic_model("llama", "q4_0", tmp_path / f"{n}.gguf", seed=seed).read_bytes()
        for n, seed in enumerate((1, 1, 2))
    ]
    assert files[0] == files[1] != files[2]


def test_shapes_are_those_of_the_published_models() -> None:
    """Counted weights against the sizes the makers state (in millions)."""
    stated = {"smollm2-135m": 134.5, "smollm2-360m": 361.8, "llama-3.2-1b": 1235.8, "llama-3.2-3b": 3212.7,
              "llama-3.1-8b": 8030.3, "tinyllama-1.1b": 1100.0, "qwen2.5-0.5b": 494.0, "qwen3-0.6b": 596.0,
              "qwen3-4b": 4022.5, "gemma3-270m": 268.1, "gemma3-1b": 999.9, "phi3-mini": 3821.1}  # fmt: skip
    for name, millions in stated.items():
        shape = SYNTH_SHAPES[name]
        layer = sum(int(np.prod(dims)) for dims in synth._layer_tensors(shape).values())
        embeddings = shape.vocab_size * shape.hidden_size * (1 if shape.tied else 2)
        total = layer * shape.num_layers + embeddings + shape.hidden_size
        assert total / 1e6 == pytest.approx(millions, rel=0.002), name


@pytest.mark.parametrize("size", [400, 1000, 32000])
def test_vocabularies_are_whole(size: int) -> None:
    tokens, merges = synth.synthetic_vocabulary(size)
    assert len(tokens) == len(set(tokens)) == size == len(merges) + 259
    assert all(len(merge.split(" ")) == 2 for merge in merges)


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"like='llama-3.2-1' \(did you mean 'llama-3.2-1b'\?\)"):
        synth.write_synthetic_model("llama-3.2-1", "q4_0", tmp_path / "m.gguf")
    with pytest.raises(ConfigError, match="quant='q4'"):
        synth.write_synthetic_model("smollm2-135m", "q4", tmp_path / "m.gguf")
    with pytest.raises(ConfigError, match="cannot write"):
        synth.write_synthetic_model("smollm2-135m", "q4_0", tmp_path / "none" / "m.gguf")


@pytest.mark.usefixtures("small_shapes")
def test_the_command(tmp_path: Path) -> None:
    import typer
    from typer.testing import CliRunner

    from paceline.cli.synth import synth as command

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(
        app, ["--like", "llama", "--quant", "q4_0", "--out", str(tmp_path / "m.gguf")]
    )
    assert result.exit_code == 0 and "m.gguf" in result.output
