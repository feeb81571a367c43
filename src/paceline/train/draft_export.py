"""Write a draft model in the form of its target: a GGUF file for a GGUF file, a folder for a folder.

So the tokenizer can be the target's, copied as it is. What is written is opened before it takes its place.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from paceline.errors import ConfigError, ModelFileError
from paceline.models.eagle3_export import PROVENANCE_KEY, safetensors_pieces, write_synced
from paceline.models.ggml_types import BF16, F32, Q8_0
from paceline.models.hf_source import LAYER_NAMES
from paceline.models.loading import load_model_files
from paceline.models.spec import TensorSource
from paceline.train.captured import to_bfloat16
from paceline.train.draft_model import DraftModelSpec, DraftModelTensors
from paceline.train.draft_start import rows_as_stored
from paceline.train.teacher import whole_tensor

if TYPE_CHECKING:
    from gguf import GGUFWriter

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
)
OF_TARGET = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight"}
"""Tensors that are the target's own (the second one where its head is not tied)."""


def draft_model_place(folder: Path, target: Path) -> Path:
    """Return where the draft model of ``target`` lies in ``folder``."""
    return folder / ("draft" if target.is_dir() else "draft.gguf")


def export_draft_model(
    out: Path,
    model: DraftModelTensors,
    target: Path,
    source: TensorSource,
    provenance: Mapping[str, Any],
) -> Path:
    """Write ``model`` to ``out`` and return it; what was there is replaced when the new one is whole.

    ``target``: file or folder, ``source``: its open tensors. GGUF: matrices in Q8_0 (BF16 where rows do not
    fill its blocks), the target's as they are stored; folder: bfloat16. Raises ``ConfigError`` for a place
    that cannot be written, ``ModelFileError`` for weights that are not finite.
    """
    for name, value in model.tensors.items():
        if not bool(value.isfinite().all()):
            raise ModelFileError(f"{name} holds NaN or infinity: the training diverged, nothing was written")
    part = out.with_name(f"{out.name}.part")
    try:
        _remove(part)
        out.parent.mkdir(parents=True, exist_ok=True)
        (_write_folder if target.is_dir() else _write_gguf)(part, model, target, source, provenance)
        load_model_files(part).close()
        _remove(out)
        part.rename(out)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror or error}; choose another --out") from error
    finally:
        _remove(part)
    return out


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# ---- a folder ----


def _write_folder(
    folder: Path,
    model: DraftModelTensors,
    target: Path,
    source: TensorSource,
    provenance: Mapping[str, Any],
) -> None:
    folder.mkdir()
    arrays = {_hf_name(name): values for name, values in rows_as_stored(model, halves=True).items()}
    arrays |= {OF_TARGET[name]: whole_tensor(source, name) for name in OF_TARGET if name in source.tensors}
    stored = {name: to_bfloat16(values) for name, values in arrays.items()}
    config = {**_hf_config(model.spec, "output.weight" not in source.tensors), "provenance": dict(provenance)}
    write_synced(folder / "model.safetensors", *safetensors_pieces(stored))
    write_synced(folder / "config.json", (json.dumps(config, indent=2) + "\n").encode())
    for name in TOKENIZER_FILES:
        if (target / name).is_file():
            shutil.copyfile(target / name, folder / name)


def _hf_name(name: str) -> str:
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, ending = name.split(".")
    names = {ours: theirs for theirs, ours in LAYER_NAMES.items()}
    return f"model.layers.{layer}.{names[part]}.{ending}"


def _hf_config(spec: DraftModelSpec, is_tied: bool) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "_name_or_path": spec.name,
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.ffn_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "max_position_embeddings": spec.max_context,
        "rms_norm_eps": spec.norm_eps,
        "rope_theta": spec.rope_base,
        "tie_word_embeddings": is_tied,
        "torch_dtype": "bfloat16",
    }


# ---- a GGUF file ----


def _write_gguf(
    path: Path,
    model: DraftModelTensors,
    target: Path,
    source: TensorSource,
    provenance: Mapping[str, Any],
) -> None:
    from gguf import GGMLQuantizationType, GGUFWriter

    writer = GGUFWriter(path, "llama")
    try:
        _add_metadata(writer, model.spec)
        writer.add_string(PROVENANCE_KEY, json.dumps(dict(provenance), ensure_ascii=False))
        _copy_tokenizer(writer, target)
        for name in OF_TARGET:
            if name in source.tensors:
                info = source.tensors[name]
                rows = source.read_rows(name, 0, info.shape[0]).reshape(info.shape[0], info.row_bytes)
                writer.add_tensor(name, rows, raw_dtype=GGMLQuantizationType(info.ggml_type))
        for name, values in rows_as_stored(model, halves=False).items():
            data, kind = _quantised(values)
            writer.add_tensor(name, data, raw_dtype=GGMLQuantizationType(kind))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _quantised(values: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], int]:
    from gguf import GGMLQuantizationType, quantize

    if values.ndim == 1:
        return values, F32.number
    kind = Q8_0 if values.shape[1] % Q8_0.block_size == 0 else BF16
    return quantize(values, GGMLQuantizationType(kind.number)), kind.number


def _add_metadata(writer: GGUFWriter, spec: DraftModelSpec) -> None:
    writer.add_name(spec.name)
    writer.add_block_count(spec.num_layers)
    writer.add_context_length(spec.max_context)
    writer.add_embedding_length(spec.hidden_size)
    writer.add_feed_forward_length(spec.ffn_size)
    writer.add_head_count(spec.num_heads)
    writer.add_head_count_kv(spec.num_kv_heads)
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_layer_norm_rms_eps(spec.norm_eps)
    writer.add_rope_dimension_count(spec.head_dim)
    writer.add_rope_freq_base(spec.rope_base)
    writer.add_vocab_size(spec.vocab_size)


def _copy_tokenizer(writer: GGUFWriter, target: Path) -> None:
    """Copy all that the target's file says of its tokenizer, chat template included."""
    from gguf import GGUFReader, GGUFValueType

    for key, field in GGUFReader(target).fields.items():
        if key.startswith("tokenizer."):
            is_list = field.types[0] == GGUFValueType.ARRAY
            writer.add_key_value(
                key, field.contents(), field.types[0], sub_type=field.types[-1] if is_list else None
            )
