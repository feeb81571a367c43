"""Write a tiny EAGLE-3 head as the folder SafeAILab, SpecForge or speculators would publish."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from support.eagle3_heads import Floats, Format, TinyHead
from support.torch_bin import write_torch_bin

Stored = dict[str, tuple[str, npt.NDArray[Any]]]
"""Name → safetensors' name of the storage type, and the array whose bytes are stored."""

_TOP = {
    "fc.weight": "fc.weight",
    "output_norm.weight": "norm.weight",
    "output.weight": "lm_head.weight",
    "token_embd.weight": "embed_tokens.weight",
    "input_norm.weight": "input_norm.weight",
}
_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_norm_2": "hidden_norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def write_folder_head(
    folder: Path, head: TinyHead, form: Format, storage: str, container: str, changes: dict[str, Any]
) -> Path:
    """Write config.json and the weights; see ``eagle3_heads.write_head``."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**folder_config(head, form), **changes}
    config = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write_weights(folder, folder_tensors(head, form, storage), container)
    return folder


def write_weights(folder: Path, tensors: Stored, container: str = "safetensors") -> None:
    """Write the tensors as one safetensors file, as two with an index, or as pytorch_model.bin."""
    if container == "bin":
        write_torch_bin(folder / "pytorch_model.bin", tensors)
    elif container == "sharded":
        names = list(tensors)
        shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
        for file, part in shards.items():
            write_safetensors(folder / file, {name: tensors[name] for name in part})
        weight_map = {name: file for file, part in shards.items() for name in part}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    else:
        write_safetensors(folder / "model.safetensors", tensors)


def write_safetensors(path: Path, tensors: Stored) -> None:
    table: dict[str, Any] = {}
    data = b""
    for name, (kind, values) in tensors.items():
        raw = values.tobytes()
        table[name] = {
            "dtype": kind,
            "shape": values.shape,
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    head = json.dumps(table).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


def folder_config(head: TinyHead, form: Format) -> dict[str, Any]:
    """Return config.json in the form the makers of ``form`` publish."""
    spec = head.spec
    layers = _layer_config(head)
    if form == "safeailab":
        flat = {**layers, "architectures": ["LlamaForCausalLM"], "draft_vocab_size": spec.draft_vocab_size}
        if spec.has_embedding:
            flat["target_hidden_size"] = spec.target_hidden_size
        del flat["rope_theta"], flat["head_dim"]
        return flat
    if form == "specforge":
        flat = {**layers, "architectures": ["LlamaForCausalLMEagle3"], "norm_output": True}
        flat |= {"draft_vocab_size": spec.draft_vocab_size, "target_hidden_size": spec.target_hidden_size}
        flat["fc_norm"] = True if spec.has_state_norms else None
        if spec.state_layers is not None:
            ids = [layer - 1 for layer in spec.state_layers]
            flat["eagle_config"] = {
                "eagle_aux_hidden_state_layer_ids": ids,
                "use_aux_hidden_state": True,
            }
        return flat
    return _speculators_config(head, layers)


def _layer_config(head: TinyHead) -> dict[str, Any]:
    spec = head.spec
    frequencies = spec.rope.inverse_frequencies
    config: dict[str, Any] = {
        "model_type": "qwen3" if spec.has_qk_norm else "llama",
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.ffn_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": spec.max_context,
        "rms_norm_eps": spec.norm_eps,
        "rope_theta": round(frequencies[1] ** -len(frequencies)),
        "attention_bias": spec.has_qkv_bias,
        "torch_dtype": "bfloat16",
    }
    if any(spec.layer_windows):
        config["sliding_window"] = max(spec.layer_windows)
        kinds = {0: "full_attention"}
        config["layer_types"] = [kinds.get(window, "sliding_attention") for window in spec.layer_windows]
        config["use_sliding_window"] = True
    return config


def _speculators_config(head: TinyHead, layers: dict[str, Any]) -> dict[str, Any]:
    spec = head.spec
    proposal = {"proposal_type": "greedy", "speculative_tokens": 3}
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [proposal],
            "verifier": {"name_or_path": "org/model", "architectures": ["LlamaForCausalLM"]},
        },
        "transformer_layer_config": layers,
        "draft_vocab_size": spec.draft_vocab_size,
        "norm_before_residual": spec.norm_before_residual,
        "norm_before_fc": spec.has_input_norm or None,
        "fc_norm": spec.has_state_norms or None,
        "norm_output": spec.norm_output or None,
        "target_hidden_size": spec.target_hidden_size,
        "eagle_aux_hidden_state_layer_ids": None if spec.state_layers is None else list(spec.state_layers),
    }


def folder_tensors(head: TinyHead, form: Format, storage: str = "f32") -> Stored:
    """Return all tensors under the names of ``form``, the vocabulary maps among them."""
    tensors: Stored = {
        folder_name(name, form): _stored(values, storage) for name, values in head.weights.items()
    }
    ids = head.draft_to_target
    if len(ids) != head.spec.vocab_size:
        mask = np.zeros(head.spec.vocab_size, np.bool_)
        mask[ids] = True
        tensors["d2t"] = ("I64", ids.astype(np.int64) - np.arange(len(ids)))
        tensors["t2d"] = ("BOOL", mask)
    return tensors


def folder_name(name: str, form: Format) -> str:
    """Return how ``form`` calls one of our names."""
    if not name.startswith("blk."):
        return _TOP.get(name, name)
    _, layer, part, suffix = name.split(".")
    where = f"layers.{layer}"
    if form != "speculators":
        where = f"additional_layers.{int(layer) - 1}" if int(layer) else "midlayer"
    return f"{where}.{_PARTS[part]}.{suffix}"


def _stored(values: Floats, storage: str) -> tuple[str, npt.NDArray[Any]]:
    if storage == "bf16":
        return "BF16", (values.view(np.uint32) >> 16).astype(np.uint16)
    return ("F16", values.astype(np.float16)) if storage == "f16" else ("F32", values)
