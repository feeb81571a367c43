"""A head exported to GGUF is the head that was exported: same spec, same blocks, same drafts, or no file."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from paceline.errors import ConfigError, ModelFileError, ModelNotFoundError
from paceline.executors.cpu import CpuExecutor
from paceline.executors.eagle3 import DraftedTree, DraftShape, Eagle3Executor
from paceline.models import eagle3_export_gguf
from paceline.models.eagle3 import open_eagle3
from paceline.models.eagle3_export import export_speculators, read_provenance
from paceline.models.eagle3_export_gguf import HEAD_QUANTS, convert_head, export_gguf
from paceline.models.ggml_types import F32, Q8_0
from paceline.models.rope import plain_frequencies
from paceline.models.spec import ModelSpec, RopeSpec
from support.eagle3_executors import load_target, pairs_batch, random_pairs
from support.eagle3_gguf import write_gguf_head
from support.eagle3_heads import TinyHead, tiny_head, write_head
from support.reference_decoder import dequantised

LAYERS = (1, 3, 5)
VERIFIER = {"name_or_path": "org/model", "architectures": ["LlamaForCausalLM"]}
PROVENANCE = {"seed": 7, "data": {"ä.jsonl": "ab12"}, "metrics": {"tokens_per_step": 2.5}}
VARIANTS = ("plain", "identity", "shared_head", "embedding", "wide", "head_dim", "residual", "qk_norm",
            "biases", "layers", "four_states", "window")  # fmt: skip
BLOCKS = tuple(range(8))
TREE = DraftShape(max_nodes=12, max_depth=4, width=3)
PARTIAL = RopeSpec(tuple(plain_frequencies(1e5, 8).tolist()), "half_split")
PAIRED = (
    ".attn_q.weight",
    ".attn_k.weight",
    ".attn_q.bias",
    ".attn_k.bias",
    "q_norm.weight",
    "k_norm.weight",
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> CpuExecutor:
    return load_target(tmp_path_factory.mktemp("target"), num_threads=1)


@pytest.fixture(scope="module")
def deep(target: CpuExecutor) -> ModelSpec:
    """The target's spec with 8 layers, as many as heads name."""
    return replace(target.spec, num_layers=8, layer_windows=(0,) * 8, layer_ropes=(0,) * 8)


def head_of(variant: str = "plain", **changes: Any) -> TinyHead:
    """A head with weights that no storage holds exactly."""
    head = tiny_head(variant, state_layers=(*LAYERS, 8)[: 4 if variant == "four_states" else 3], **changes)
    rng = np.random.default_rng(1)
    spread = {n: (v + rng.normal(size=v.shape) * 1e-3).astype(np.float32) for n, v in head.weights.items()}
    return replace(head, weights=spread)


def export(path: Path, head: TinyHead, quant: str = "q8_0", **changes: Any) -> Path:
    facts: dict[str, Any] = {"verifier": VERIFIER, "provenance": PROVENANCE}
    tensors = changes.pop("tensors", head.weights)
    return export_gguf(path, head.spec, tensors, head.draft_to_target, quant=quant, **facts, **changes)


def export_folder(folder: Path, head: TinyHead) -> Path:
    return export_speculators(folder, head.spec, head.weights, head.draft_to_target, VERIFIER, PROVENANCE)


def draft(path: Path, spec: ModelSpec, target: CpuExecutor, head: TinyHead, quant: Any) -> DraftedTree:
    files = open_eagle3(path, spec, quant=quant)
    with closing(files.source):
        executor = Eagle3Executor.load(files, target, num_blocks=len(BLOCKS), cache_type="float32")
    tokens, states = random_pairs(head, 40)
    return executor.draft(pairs_batch(tokens[1:], 0, BLOCKS, 1), states, TREE)


@pytest.mark.parametrize("quant", HEAD_QUANTS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_it_opens_as_the_head_it_was(tmp_path: Path, deep: ModelSpec, variant: str, quant: str) -> None:
    head = head_of(variant)
    path = export(tmp_path / "new" / "head.gguf", head, quant)
    assert [file.name for file in path.parent.iterdir()] == ["head.gguf"]
    kind, number = HEAD_QUANTS[quant], gguf.GGMLQuantizationType(HEAD_QUANTS[quant].number)
    files = open_eagle3(path, deep)
    with closing(files.source):
        assert files.spec.norm_eps == np.float32(head.spec.norm_eps)
        assert files.spec.rope == replace(head.spec.rope, style="interleaved")
        assert replace(files.spec, norm_eps=head.spec.norm_eps, rope=head.spec.rope) == head.spec
        assert np.array_equal(files.draft_to_target, head.draft_to_target)
        for name, values in head.weights.items():
            stored = files.source.tensors[name].ggml_type
            expected = values
            if values.ndim == 2:
                expected = np.asarray(gguf.dequantize(gguf.quantize(values, number), number), np.float32)
            assert stored == (kind if values.ndim == 2 else F32).number, name
            if not name.endswith(PAIRED):
                assert np.array_equal(dequantised(files.source, name), expected), name
    assert read_provenance(path) == read_provenance(path.parent) == PROVENANCE


@pytest.mark.parametrize(
    ("variant", "changes"),
    [(variant, {}) for variant in VARIANTS] + [("plain", {"rope": PARTIAL}), ("qk_norm", {"rope": PARTIAL})],
)
@pytest.mark.parametrize(("quant", "of_folder"), [("q8_0", "q8"), ("q4_0", "q4")])
def test_it_drafts_as_the_folder_does(
    tmp_path: Path,
    deep: ModelSpec,
    target: CpuExecutor,
    variant: str,
    changes: dict[str, Any],
    quant: str,
    of_folder: str,
) -> None:
    """The rows of q and k, their biases and their norms change places together, or drafts would differ."""
    head = head_of(variant, **changes)
    expected = draft(export_folder(tmp_path / "head", head), deep, target, head, of_folder)
    got = draft(export(tmp_path / "head.gguf", head, quant), deep, target, head, "none")
    assert len(got) > 3
    assert got.tokens.tolist() == expected.tokens.tolist()
    assert got.parents.tolist() == expected.parents.tolist()
    assert np.abs(got.log_probs - expected.log_probs).max() <= 2e-4


def test_a_folder_is_converted_with_all_it_says(tmp_path: Path) -> None:
    head = head_of()
    folder = export_folder(tmp_path / "head", head)
    converted = convert_head(folder, tmp_path / "a.gguf", quant="q4_1")
    assert converted.read_bytes() == export(tmp_path / "b.gguf", head, "q4_1").read_bytes()
    bits = {name: (values.view(np.uint32) >> 16).astype(np.uint16) for name, values in head.weights.items()}
    export_speculators(folder, head.spec, bits, head.draft_to_target, VERIFIER, PROVENANCE)
    convert_head(str(folder), converted, quant="bf16")
    assert converted.read_bytes() == export(tmp_path / "b.gguf", head, "bf16", tensors=bits).read_bytes()
    with pytest.raises(ConfigError, match="is a file already"):
        convert_head(converted, tmp_path / "c.gguf", quant="q8_0")
    with pytest.raises(ModelNotFoundError):
        convert_head(tmp_path / "nowhere", tmp_path / "c.gguf", quant="q8_0")


def test_layers_that_a_head_leaves_open_must_be_named(tmp_path: Path, deep: ModelSpec) -> None:
    """SafeAILab's heads leave them to the target's number of layers, which a GGUF file cannot."""
    folder = write_head(tmp_path / "head", tiny_head(), "safeailab")
    with pytest.raises(ConfigError, match="does not state the layers it reads"):
        convert_head(folder, tmp_path / "h.gguf", quant="q8_0")
    with pytest.raises(ConfigError, match="reads 3 states"):
        convert_head(folder, tmp_path / "h.gguf", quant="q8_0", state_layers=(2, 4))
    files = open_eagle3(convert_head(folder, tmp_path / "h.gguf", quant="q8_0", state_layers=(2, 4, 5)), deep)
    files.source.close()
    assert files.spec.state_layers == (2, 4, 5)
    assert read_provenance(tmp_path / "h.gguf") == {}
    named = export_folder(tmp_path / "named", head_of())
    with pytest.raises(ConfigError, match=r"the head states \(1, 3, 5\)"):
        convert_head(named, tmp_path / "h.gguf", quant="q8_0", state_layers=(2, 4, 5))


def test_what_the_form_cannot_hold_is_refused(tmp_path: Path) -> None:
    path, head = tmp_path / "h.gguf", head_of()
    for variant, field in (
        ("eagle31", "norm_output, has_state_norms"),
        ("input_norm", "has_input_norm"),
        ("output_bias", "has_output_bias"),
    ):
        with pytest.raises(ConfigError, match=f"has no {field}; keep it as a folder"):
            export(path, head_of(variant))
    with pytest.raises(ConfigError, match="one window size"):
        export(path, head_of("layers", layer_windows=(0, 8, 16)))
    with pytest.raises(ConfigError, match="plain rope"):
        export(path, head_of(rope=replace(head.spec.rope, style="interleaved")))
    odd = RopeSpec(tuple(plain_frequencies(12345.678, 16).tolist()), "half_split")
    with pytest.raises(ConfigError, match=r"float32, which cannot hold 12345\.678"):
        export(path, head_of(rope=odd))
    with pytest.raises(ModelFileError, match="does not keep name"):
        export(path, head_of(name=""))
    assert not list(tmp_path.iterdir())


def test_wrong_inputs_leave_no_file(tmp_path: Path) -> None:
    path, head = tmp_path / "h.gguf", head_of()
    weights: dict[str, Any] = dict(head.weights)
    with pytest.raises(
        ConfigError, match=r"quant='q8'.*did you mean 'q8_0'.*known are q8_0, q4_0, q4_1, bf16"
    ):
        export(path, head, "q8")
    with pytest.raises(ConfigError, match=r"name it \*\.gguf"):
        export(tmp_path / "head", head)
    with pytest.raises(ModelFileError, match=r"fc\.weight is \[64, 2\], expected \[64, 192\]"):
        export(path, head, tensors=weights | {"fc.weight": np.zeros((64, 2), np.float32)})
    with pytest.raises(ConfigError, match=r"fc\.weight is float64"):
        export(path, head, tensors=weights | {"fc.weight": weights["fc.weight"].astype(np.float64)})
    spoilt = weights["fc.weight"].copy()
    spoilt[0, 0] = np.nan
    with pytest.raises(ModelFileError, match=r"fc\.weight holds NaN"):
        export(path, head, tensors=weights | {"fc.weight": spoilt})
    spoilt[0, 0] = 7e4
    with pytest.raises(ModelFileError, match=r"fc\.weight holds 70000, past the range of F16: take bf16"):
        export(path, head, "f16", tensors=weights | {"fc.weight": spoilt})
    with pytest.raises(ModelFileError, match="d2t does not rise"):
        export(path, replace(head, draft_to_target=head.draft_to_target[::-1].copy()))
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = export(tmp_path / "h.gguf", head_of())
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(eagle3_export_gguf.os, "fsync", full)
    with pytest.raises(ConfigError, match=r"cannot write .*No space left"):
        export(path, head_of("residual"))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["h.gguf"]


def test_the_file_is_little_more_than_its_blocks(tmp_path: Path) -> None:
    head = head_of("identity")
    for quant, bits in (("bf16", 16), ("q8_0", 8.5), ("q4_1", 5), ("q4_0", 4.5)):
        blocks = sum(v.size * (bits / 8 if v.ndim == 2 else 4) for v in head.weights.values())
        size = export(tmp_path / "h.gguf", head, quant).stat().st_size
        assert blocks <= size <= blocks + 4096


def test_rows_that_do_not_fill_blocks_stay_bf16(tmp_path: Path, deep: ModelSpec) -> None:
    head = head_of(ffn_size=80)
    files = open_eagle3(export(tmp_path / "h.gguf", head), deep)
    with closing(files.source):
        kinds = {name: info.ggml_type for name, info in files.source.tensors.items()}
        assert kinds["blk.0.ffn_down.weight"] == HEAD_QUANTS["bf16"].number
        assert kinds["blk.0.ffn_up.weight"] == Q8_0.number


def test_provenance_of_heads_made_elsewhere(tmp_path: Path) -> None:
    assert read_provenance(write_gguf_head(tmp_path / "h.gguf", tiny_head())) == {}
    damaged = export(tmp_path / "d.gguf", head_of())
    damaged.write_bytes(damaged.read_bytes().replace(b'{"seed"', b'("seed"'))
    with pytest.raises(ModelFileError, match=r"paceline\.provenance = .*needs JSON"):
        read_provenance(damaged)
