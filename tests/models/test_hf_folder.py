"""Hugging Face folders: the GGUF file's twin, sharded, in bfloat16, quantised while read, or broken."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from paceline.errors import ConfigError, ModelFileError
from paceline.models.ggml_types import BF16, F32, Q4_0, Q8_0
from paceline.models.loading import load_model_files
from support.reference_decoder import ReferenceDecoder, dequantised
from support.tiny_models import TINY_VARIANTS, write_tiny_gguf, write_tiny_hf

TOKENS = list(range(3, 63))


def change_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize("arch", TINY_VARIANTS)
def test_a_folder_is_the_same_model_as_the_file(tmp_path: Path, arch: str) -> None:
    """Every field of the spec but the name, and the logits: only GGUF permutes llama's q and k."""
    with (
        load_model_files(write_tiny_gguf(tmp_path / "m.gguf", arch)) as file,
        load_model_files(write_tiny_hf(tmp_path / "hf", arch)) as folder,
    ):
        for field in fields(file.spec):
            ours, theirs = getattr(file.spec, field.name), getattr(folder.spec, field.name)
            if field.name == "ropes":
                for rope, other in zip(ours, theirs, strict=True):
                    assert np.allclose(rope.inverse_frequencies, other.inverse_frequencies, rtol=1e-6)
                    assert rope.attention_factor == pytest.approx(other.attention_factor)
            elif field.name == "norm_eps":
                assert ours == pytest.approx(theirs)
            elif field.name != "name":
                assert ours == theirs, field.name
        ours = ReferenceDecoder(file.spec, file.source).logits(TOKENS)
        theirs = ReferenceDecoder(folder.spec, folder.source).logits(TOKENS)
        assert np.abs(ours - theirs).max() < 1e-5
        assert folder.tokenizer.eos_token_id == 2 and folder.chat_template_text == file.chat_template_text


@pytest.mark.parametrize("quant", ["q8", "q4"])
def test_quantising_equals_ggufs_quantiser(tmp_path: Path, quant: Any) -> None:
    folder = write_tiny_hf(tmp_path / "hf", "phi3")
    kind = Q8_0 if quant == "q8" else Q4_0
    with load_model_files(folder) as plain, load_model_files(folder, quant=quant) as model:
        for name, info in model.source.tensors.items():
            values = dequantised(plain.source, name)
            if values.ndim == 1:
                assert info.ggml_type == F32.number and (dequantised(model.source, name) == values).all()
                continue
            assert info.ggml_type == kind.number and info.row_bytes == kind.row_bytes(info.shape[1])
            expected = gguf.quantize(values, gguf.GGMLQuantizationType(kind.number)).tobytes()
            assert model.source.read_rows(name, 0, info.shape[0]).tobytes() == expected
            rows = [model.source.read_rows(name, row, 1).tobytes() for row in range(info.shape[0])]
            assert b"".join(rows) == expected


def test_columns_that_fill_no_block_stay_as_they_are(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path / "hf")
    tensors = load_file(folder / "model.safetensors")
    for layer in range(2):
        mlp = f"model.layers.{layer}.mlp."
        tensors[f"{mlp}down_proj.weight"] = np.ascontiguousarray(tensors[f"{mlp}down_proj.weight"][:, :90])
        for part in ("gate_proj", "up_proj"):
            tensors[f"{mlp}{part}.weight"] = tensors[f"{mlp}{part}.weight"][:90].copy()
    save_file(tensors, folder / "model.safetensors")
    change_config(folder, intermediate_size=90)
    with load_model_files(folder, quant="q4") as model:
        assert model.source.tensors["blk.0.ffn_down.weight"].ggml_type == F32.number
        assert model.source.tensors["blk.0.ffn_up.weight"].ggml_type == Q4_0.number


def test_bfloat16_is_kept_and_norms_are_made_ready(tmp_path: Path) -> None:
    import struct

    folder = write_tiny_hf(tmp_path / "hf", "gemma3")
    tensors = load_file(folder / "model.safetensors")
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, values in tensors.items():
        raw = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        table[name] = {
            "dtype": "BF16",
            "shape": values.shape,
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    head = json.dumps(table).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    with load_model_files(folder) as model:
        info = model.source.tensors["blk.0.attn_q.weight"]
        assert info.ggml_type == BF16.number and info.row_bytes == 128
        stored = (tensors["model.layers.0.self_attn.q_proj.weight"].view(np.uint32) >> 16).astype(np.uint16)
        assert model.source.read_rows("blk.0.attn_q.weight", 0, 128).tobytes() == stored.tobytes()
        norm = dequantised(model.source, "blk.0.attn_norm.weight")
        assert (norm == tensors["model.layers.0.input_layernorm.weight"] + 1).all()


def shard(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    names = list(tensors)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in halves.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    weight_map = {name: file for file, part in halves.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "model.safetensors").unlink()


def test_shards_are_put_together(tmp_path: Path) -> None:
    whole, sharded = write_tiny_hf(tmp_path / "whole", "phi3"), write_tiny_hf(tmp_path / "sharded", "phi3")
    shard(sharded)
    with load_model_files(whole) as one, load_model_files(sharded) as many:
        assert one.source.tensors == many.source.tensors
        for name in one.source.tensors:
            assert (dequantised(one.source, name) == dequantised(many.source, name)).all()


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path / "hf")
    shard(folder)
    (folder / "b.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"names the file 'b.safetensors', which is not in the folder"):
        load_model_files(folder)


@pytest.mark.reference
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("arch", TINY_VARIANTS)
def test_what_transformers_5_saves_is_the_same_model(tmp_path: Path, arch: str) -> None:
    """transformers 5 writes rope_parameters and layer_types where published folders have older fields."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = write_tiny_hf(tmp_path / "hf", arch)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.save_pretrained(tmp_path / "saved")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "saved" / name).write_text((folder / name).read_text())
    with load_model_files(folder) as old, load_model_files(tmp_path / "saved") as new:
        for field in fields(old.spec):
            if field.name != "name":
                assert getattr(old.spec, field.name) == getattr(new.spec, field.name), field.name
        assert old.source.tensors == new.source.tensors


_CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "type": ({"model_type": "gpt2"}, "type 'gpt2'.*supported are llama"),
    "no type": ({"model_type": None}, "does not state model_type"),
    "activation": ({"hidden_act": "relu"}, "hidden_act = 'relu'"),
    "heads": ({"num_key_value_heads": 3}, "a divisor of 4"),
    "layers": ({"num_hidden_layers": 10**9}, "1 to 1024"),
    "vocabulary": ({"vocab_size": 321}, r"token_embd.weight is \[320, 64\], expected \[321, 64\]"),
    "rope": ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type = 'dynamic'"),
    "rope table": ({"rope_scaling": [1]}, "needs a table"),
    "rope base": ({"rope_theta": "big"}, "rope_theta = 'big'"),
    "llama3": (
        {"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}},
        "above low_freq_factor",
    ),
    "partial": ({"partial_rotary_factor": 0.3125}, "even number of rotated dims"),
}


@pytest.mark.parametrize("case", _CHANGES)
def test_wrong_configs_are_refused(tmp_path: Path, case: str) -> None:
    changes, message = _CHANGES[case]
    folder = write_tiny_hf(tmp_path / "hf")
    change_config(folder, **changes)
    with pytest.raises(ModelFileError, match=message):
        load_model_files(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "neither config.json nor a GGUF"),
        ("config.json", b"{", "cannot be read as JSON"),
        ("config.json", b"[]", "no JSON object"),
        ("model.safetensors", None, "neither model.safetensors nor"),
        ("model.safetensors", b"\xff" * 8, "truncated, download it again"),
        ("model.safetensors", b"\x02\0\0\0\0\0\0\0[]", "no table"),
        ("tokenizer.json", None, "has no tokenizer.json"),
        ("tokenizer_config.json", b'{"chat_template": 3}', "chat_template that is no text"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    from paceline.errors import PacelineError

    folder = write_tiny_hf(tmp_path / "hf")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(PacelineError, match=message):
        load_model_files(folder)


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path / "hf")
    raw = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(raw[:-100])
    with pytest.raises(ModelFileError, match="truncated or corrupt"):
        load_model_files(folder)


def test_a_tokenizer_that_does_not_fit(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path / "hf")
    path = folder / "tokenizer.json"
    pipeline = json.loads(path.read_text())
    pipeline["added_tokens"].append({"id": 999, "content": "<x>", "special": True})
    path.write_text(json.dumps(pipeline))
    with load_model_files(folder) as model, pytest.raises(ModelFileError, match="token id 999"):
        model.tokenizer  # noqa: B018
    path.write_text('{"model": {"vocab": {}, "type": "none"}}')
    with load_model_files(folder) as model, pytest.raises(ModelFileError, match="describes no tokenizer"):
        model.tokenizer  # noqa: B018


def test_bos_rules_of_a_folder(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path / "hf")
    path = folder / "tokenizer.json"
    pipeline = json.loads(path.read_text())
    pipeline["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [],
        "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}},
    }
    path.write_text(json.dumps(pipeline))
    with load_model_files(folder) as model:
        assert model.tokenizer.encode("a")[0] == 1 and model.tokenizer.encode("a", add_bos=False)[0] != 1


def test_arguments_are_checked(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf")
    with pytest.raises(ConfigError, match="GGUF file, which has its storage types already"):
        load_model_files(path, quant="q4")
    with pytest.raises(ConfigError, match=r"quant='q5'.*known are none, q8, q4"):
        load_model_files(path, quant="q5")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_context=0"):
        load_model_files(path, max_context=0)
