"""Every format × variant of an EAGLE-3 head opens and gives the spec and the tensors it was written with."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from paceline.errors import ConfigError, DrafterError, VocabularyMismatchError
from paceline.models.eagle3 import check_fit, open_eagle3
from paceline.models.eagle3_spec import Eagle3Files
from paceline.models.ggml_types import BF16, F16, F32, Q4_0, Q8_0
from paceline.models.loading import load_model_files
from paceline.models.spec import ModelSpec
from support.eagle3_gguf import interleaved, write_gguf_head
from support.eagle3_heads import FORMAT_VARIANTS, Format, TinyHead, tiny_head, write_head
from support.reference_decoder import dequantised
from support.tiny_models import write_tiny_gguf, write_tiny_hf
from support.tiny_tokenizer import TOKENS, VOCAB_SIZE

CASES = [(form, variant) for form, variants in FORMAT_VARIANTS.items() for variant in variants]
FOLDERS: tuple[Format, ...] = ("safeailab", "specforge", "speculators")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    """A target of 8 layers, 64 wide, with 320 ids."""
    with load_model_files(write_tiny_gguf(tmp_path_factory.mktemp("target") / "t.gguf")) as model:
        return replace(model.spec, num_layers=8, layer_windows=(0,) * 8, layer_ropes=(0,) * 8)


def head_of(variant: str, form: str) -> TinyHead:
    """A head of a variant; four states need their layers named, the others keep the default."""
    return tiny_head(variant, **({"state_layers": (1, 3, 5, 8)} if variant == "four_states" else {}))


def check_same(files: Eagle3Files, head: TinyHead, form: str) -> None:
    assert set(files.source.tensors) == set(head.weights)
    for name, values in head.weights.items():
        is_permuted = form == "gguf" and name.endswith(("attn_q.weight", "attn_k.weight"))
        expected = interleaved(values, head.spec.head_dim) if is_permuted else values
        assert np.array_equal(dequantised(files.source, name), expected), name
    assert files.draft_to_target.dtype == np.int32
    assert np.array_equal(files.draft_to_target, head.draft_to_target)


@pytest.mark.parametrize(("form", "variant"), CASES)
def test_a_head_is_read_as_it_was_written(
    tmp_path: Path, target: ModelSpec, form: Format, variant: str
) -> None:
    head = head_of(variant, form)
    files = open_eagle3(write_head(tmp_path / "head", head, form), target)
    with closing(files.source):
        check_same(files, head, form)
        spec = replace(files.spec, name=head.spec.name)
        if form == "gguf":
            assert spec.rope.style == "interleaved" and spec.state_layers == (2, 4, 5)
            assert spec.norm_eps == pytest.approx(head.spec.norm_eps)
            spec = replace(spec, rope=head.spec.rope, state_layers=None, norm_eps=head.spec.norm_eps)
        assert spec == head.spec
        check_fit(files, target, TOKENS)


@pytest.mark.parametrize("container", ["safetensors", "sharded", "bin"])
@pytest.mark.parametrize(("storage", "kind"), [("f32", F32), ("f16", F16), ("bf16", BF16)])
@pytest.mark.parametrize("form", FOLDERS)
def test_storage_and_container(
    tmp_path: Path, target: ModelSpec, form: Format, container: str, storage: str, kind: Any
) -> None:
    head = tiny_head()
    files = open_eagle3(
        write_head(tmp_path / "head", head, form, storage=storage, container=container), target
    )
    with closing(files.source):
        assert files.source.tensors["fc.weight"].ggml_type == kind.number
        assert files.source.tensors["blk.0.attn_norm.weight"].ggml_type == F32.number
        check_same(files, head, form)


@pytest.mark.parametrize(("quant", "kind"), [("q8", Q8_0), ("q4", Q4_0)])
def test_quantising_while_reading(tmp_path: Path, target: ModelSpec, quant: Any, kind: Any) -> None:
    head = tiny_head("embedding")
    files = open_eagle3(write_head(tmp_path / "head", head, storage="bf16"), target, quant=quant)
    with closing(files.source):
        for name, values in head.weights.items():
            expected = values
            if values.ndim == 2:
                blocks = gguf.quantize(values, gguf.GGMLQuantizationType(kind.number))
                expected = gguf.dequantize(blocks, gguf.GGMLQuantizationType(kind.number))
            assert np.array_equal(dequantised(files.source, name), expected), name


def test_a_gguf_head_keeps_its_storage(tmp_path: Path, target: ModelSpec) -> None:
    path = write_gguf_head(tmp_path / "h.gguf", tiny_head(), quantised=gguf.GGMLQuantizationType.Q8_0)
    files = open_eagle3(path, target)
    with closing(files.source):
        assert files.source.tensors["fc.weight"].ggml_type == Q8_0.number
    with pytest.raises(ConfigError, match=r"quant='q4' applies to folders"):
        open_eagle3(path, target, quant="q4")
    with pytest.raises(ConfigError, match=r"quant='q9'.*known are none, q8, q4"):
        open_eagle3(path, target, quant="q9")  # type: ignore[arg-type]


def test_both_conventions_of_layer_ids_mean_the_same_states(tmp_path: Path, target: ModelSpec) -> None:
    """[0, 3, 7] by outputs and [1, 4, 8] by inputs are the same states: one off is another head."""
    ids = {"eagle_aux_hidden_state_layer_ids": [0, 3, 7]}
    nested = open_eagle3(write_head(tmp_path / "a", tiny_head(), "specforge", eagle_config=ids), target)
    top = open_eagle3(
        write_head(tmp_path / "b", tiny_head(), eagle_aux_hidden_state_layer_ids=[1, 4, 8]), target
    )
    default = open_eagle3(write_head(tmp_path / "c", tiny_head()), target)
    for files in (nested, top, default):
        files.source.close()
    assert nested.spec.state_layers == top.spec.state_layers == (1, 4, 8)
    assert default.spec.layers_of(8) == (2, 4, 5)


def test_norm_output_means_two_things(tmp_path: Path, target: ModelSpec) -> None:
    """SpecForge's flag says that a norm stands before the head; only speculators' feeds it back."""
    flat = open_eagle3(write_head(tmp_path / "a", tiny_head(), "specforge", norm_output=True), target)
    nested = open_eagle3(write_head(tmp_path / "b", tiny_head(), "speculators", norm_output=True), target)
    for files in (flat, nested):
        files.source.close()
    assert not flat.spec.norm_output and nested.spec.norm_output


def test_rope_defaults_and_scaling(tmp_path: Path, target: ModelSpec) -> None:
    plain = tiny_head().spec.rope
    head = open_eagle3(write_head(tmp_path / "a", tiny_head(), "specforge", rope_theta=None), target)
    scaling = {"rope_type": "linear", "factor": 4.0}
    scaled = open_eagle3(write_head(tmp_path / "b", tiny_head(), "specforge", rope_scaling=scaling), target)
    for files in (head, scaled):
        files.source.close()
    assert head.spec.rope == plain
    assert np.allclose(np.array(plain.inverse_frequencies) / 4, scaled.spec.rope.inverse_frequencies)


def test_the_targets_number_of_layers_in_a_heads_config_is_not_its_own(
    tmp_path: Path, target: ModelSpec
) -> None:
    """EAGLE3-Vicuna1.3-13B states num_hidden_layers 40, its target's, and has one layer."""
    files = open_eagle3(write_head(tmp_path / "a", tiny_head(), "safeailab", num_hidden_layers=40), target)
    files.source.close()
    assert files.spec.num_layers == 1


@pytest.mark.parametrize("missing", ["d2t", "t2d"])
def test_one_vocabulary_map_is_enough(tmp_path: Path, target: ModelSpec, missing: str) -> None:
    from support.eagle3_folders import folder_tensors, write_weights

    folder, head = write_head(tmp_path / "a", tiny_head()), tiny_head()
    write_weights(folder, {k: v for k, v in folder_tensors(head, "speculators").items() if k != missing})
    files = open_eagle3(folder, target)
    files.source.close()
    assert np.array_equal(files.draft_to_target, head.draft_to_target)


def test_a_prefix_is_stripped_and_rotary_buffers_are_skipped(tmp_path: Path, target: ModelSpec) -> None:
    from support.eagle3_folders import folder_tensors, write_weights

    head = tiny_head("layers")
    folder = write_head(tmp_path / "a", head, "specforge")
    tensors = {f"model.{name}": value for name, value in folder_tensors(head, "specforge").items()}
    tensors["model.midlayer.self_attn.rotary_emb.inv_freq"] = ("F32", np.ones(8, np.float32))
    write_weights(folder, tensors)
    files = open_eagle3(folder, target)
    with closing(files.source):
        check_same(files, head, "specforge")


# ---- the target ----


@pytest.mark.parametrize(
    ("variant", "changes", "error", "message"),
    [
        (
            "plain",
            {"hidden_size": 96},
            DrafterError,
            "reads states of 64 values, but the states of .* have 96",
        ),
        ("wide", {"hidden_size": 96}, DrafterError, "states of .* have 96"),
        ("plain", {"vocab_size": 319}, VocabularyMismatchError, "made for 320 token ids, but .* has 319"),
        ("plain", {"num_layers": 2}, DrafterError, r"enter layers \[2, 1, -1\], but .* has 2 layers"),
    ],
)
def test_a_head_of_another_target_is_refused(
    tmp_path: Path, target: ModelSpec, variant: str, changes: dict[str, Any], error: Any, message: str
) -> None:
    path = write_head(tmp_path / "head", tiny_head(variant))
    with pytest.raises(error, match=message):
        open_eagle3(path, replace(target, **changes))


def test_a_wide_head_needs_tables_of_its_own(tmp_path: Path, target: ModelSpec) -> None:
    head = tiny_head("wide", has_embedding=False, has_head=False)
    path = write_head(tmp_path / "head", head)
    with pytest.raises(
        DrafterError, match=r"no embedding .* and no output head .*64 values where .* have 96"
    ):
        open_eagle3(path, target)


def test_a_tokenizer_beside_the_head_is_compared_id_by_id(tmp_path: Path, target: ModelSpec) -> None:
    folder = write_head(tmp_path / "head", tiny_head())
    other = write_tiny_hf(tmp_path / "model")
    (folder / "tokenizer.json").write_bytes((other / "tokenizer.json").read_bytes())
    files = open_eagle3(folder, target)
    files.source.close()
    check_fit(files, target, TOKENS)
    swapped = list(TOKENS)
    swapped[7], swapped[8] = swapped[8], swapped[7]
    with pytest.raises(VocabularyMismatchError, match=r"EAGLE-3 head 'head'.*id 7 is"):
        check_fit(files, target, swapped)
    assert len(TOKENS) == VOCAB_SIZE
