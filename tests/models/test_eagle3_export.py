"""An exported head is read back as the same spec and the same bits, whole or not at all."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from paceline.errors import ConfigError, ModelFileError
from paceline.models import eagle3_export
from paceline.models.eagle3 import open_eagle3
from paceline.models.eagle3_export import export_speculators, read_provenance, rope_base
from paceline.models.loading import load_model_files
from paceline.models.rope import plain_frequencies
from paceline.models.spec import ModelSpec, RopeSpec
from support.eagle3_heads import HEAD_VARIANTS, TinyHead, tiny_head
from support.tiny_models import write_tiny_gguf

VERIFIER = {"name_or_path": "org/model", "architectures": ["LlamaForCausalLM"]}
PROVENANCE = {"seed": 7, "data": {"a.jsonl": "ab12"}, "metrics": {"tokens_per_step": 2.5}}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    with load_model_files(write_tiny_gguf(tmp_path_factory.mktemp("target") / "t.gguf")) as model:
        return replace(model.spec, num_layers=8, layer_windows=(0,) * 8, layer_ropes=(0,) * 8)


def half(values: Any) -> Any:
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def export(folder: Path, head: TinyHead, tensors: Any = None, **changes: Any) -> Path:
    arguments: dict[str, Any] = {"verifier": VERIFIER, "provenance": PROVENANCE, **changes}
    return export_speculators(folder, head.spec, tensors or head.weights, head.draft_to_target, **arguments)


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("variant", HEAD_VARIANTS)
def test_reads_back_bit_identical(tmp_path: Path, target: ModelSpec, variant: str, bf16: bool) -> None:
    head = tiny_head(variant, **({"state_layers": (0, 3, 5, 8)} if variant == "four_states" else {}))
    rng = np.random.default_rng(1)
    tensors: dict[str, Any] = {
        name: (values + rng.normal(size=values.shape) * 1e-3).astype(np.float32)
        for name, values in head.weights.items()
    }
    if bf16:
        tensors = {name: half(values) for name, values in tensors.items()}
    files = open_eagle3(export(tmp_path / "out" / "head", head, tensors), target)
    with closing(files.source):
        assert files.spec == head.spec
        assert np.array_equal(files.draft_to_target, head.draft_to_target)
        assert set(files.source.tensors) == set(tensors)
        for name, values in tensors.items():
            info = files.source.tensors[name]
            raw = files.source.read_rows(name, 0, info.shape[0] if len(info.shape) > 1 else 1)
            expected = values
            if values.dtype == np.uint16 and values.ndim == 1:
                expected = (values.astype(np.uint32) << 16).view(np.float32)
            assert raw.tobytes() == expected.tobytes(), name
    assert read_provenance(tmp_path / "out" / "head") == PROVENANCE


def test_the_folder_is_what_others_read(tmp_path: Path) -> None:
    head = tiny_head("eagle31", state_layers=(1, 4, 7))
    folder = export(tmp_path / "head", head)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["config.json", "head", "model.safetensors"]
    tensors = load_file(folder / "model.safetensors")
    ids = head.draft_to_target
    assert np.array_equal(tensors["d2t"] + np.arange(96), ids) and tensors["d2t"].dtype == np.int64
    assert np.array_equal(np.flatnonzero(tensors["t2d"]), ids) and tensors["t2d"].dtype == np.bool_
    assert np.array_equal(tensors["layers.0.self_attn.q_proj.weight"], head.weights["blk.0.attn_q.weight"])
    config = json.loads((folder / "config.json").read_text())
    assert config["speculators_config"]["verifier"] == VERIFIER
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 4, 7]
    assert config["fc_norm"] and config["norm_output"] and not config["norm_before_fc"]
    assert config["transformer_layer_config"]["rope_theta"] == 10000.0


def test_an_earlier_export_is_replaced_and_nothing_else(tmp_path: Path, target: ModelSpec) -> None:
    export(tmp_path / "head", tiny_head("embedding"))
    export(tmp_path / "head", tiny_head("qk_norm"))
    files = open_eagle3(tmp_path / "head", target)
    files.source.close()
    assert files.spec.has_qk_norm and not files.spec.has_embedding
    (tmp_path / "head" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds other things than an exported head"):
        export(tmp_path / "head", tiny_head())
    assert (tmp_path / "head" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("fails_at", ["model.safetensors", "config.json"])
def test_a_full_disk_leaves_the_old_head(
    tmp_path: Path, target: ModelSpec, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    export(tmp_path / "head", tiny_head("embedding"))
    write = eagle3_export.write_synced

    def full(path: Path, *pieces: Any) -> None:
        write(path, *pieces[:1])
        if path.name == fails_at:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(eagle3_export, "write_synced", full)
    with pytest.raises(ConfigError, match=r"cannot write .*No space left"):
        export(tmp_path / "head", tiny_head())
    assert [path.name for path in tmp_path.iterdir()] == ["head"]
    files = open_eagle3(tmp_path / "head", target)
    files.source.close()
    assert files.spec.has_embedding


def test_what_does_not_make_the_head_is_refused(tmp_path: Path) -> None:
    head = tiny_head()
    weights: dict[str, Any] = dict(head.weights)
    with pytest.raises(ModelFileError, match=r"fc\.weight is \[64, 2\], expected \[64, 192\]"):
        export(tmp_path / "h", head, weights | {"fc.weight": np.zeros((64, 2), np.float32)})
    with pytest.raises(ConfigError, match=r"fc\.weight is float64; give float32"):
        export(tmp_path / "h", head, weights | {"fc.weight": weights["fc.weight"].astype(np.float64)})
    spoilt = weights["fc.weight"].copy()
    spoilt[0, 0] = np.nan
    for values in (spoilt, half(spoilt)):
        with pytest.raises(ModelFileError, match=r"fc\.weight holds NaN or infinity"):
            export(tmp_path / "h", head, weights | {"fc.weight": values})
    falling = TinyHead(head.spec, head.weights, head.draft_to_target[::-1].copy())
    with pytest.raises(ModelFileError, match="d2t does not rise"):
        export(tmp_path / "h", falling)
    with pytest.raises(ConfigError, match="one window size for all layers"):
        export(tmp_path / "h", tiny_head("layers", layer_windows=(0, 8, 16)))
    with pytest.raises(ConfigError, match="plain rope"):
        export(tmp_path / "h", tiny_head(rope=replace(head.spec.rope, style="interleaved")))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("base", [10000.0, 1e6, 5e5, 8.5e4, 130000.0, 12345.678, 150000.25])
@pytest.mark.parametrize("dims", [4, 16, 64, 128, 256])
def test_the_base_of_a_rope_is_found(base: float, dims: int) -> None:
    rope = RopeSpec(tuple(plain_frequencies(base, dims).tolist()), "half_split")
    found = rope_base(rope)
    assert tuple(plain_frequencies(found, dims).tolist()) == rope.inverse_frequencies
    if dims == 4:  # two frequencies fit some base, whatever they are
        return
    with pytest.raises(ConfigError):
        rope_base(
            replace(rope, inverse_frequencies=(1.0, *(f / 2 for f in rope.inverse_frequencies[1:-1]), 0.3))
        )
