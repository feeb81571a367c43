"""Write a tiny model as the Hugging Face folder its makers would publish."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from support import tiny_models as tiny
from support.tiny_tokenizer import (
    BOS_ID,
    CHAT_TEMPLATE,
    EOS_ID,
    MERGES,
    SPECIAL_TOKENS,
    TOKENS,
    VOCAB_SIZE,
)

Floats = npt.NDArray[np.float32]

_CLASSES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "llama3": ("llama", "LlamaForCausalLM"),
    "mistral": ("mistral", "MistralForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen2-yarn": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "gemma2": ("gemma2", "Gemma2ForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
    "gemma3-linear": ("gemma3_text", "Gemma3ForCausalLM"),
    "phi3": ("phi3", "Phi3ForCausalLM"),
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}
_GEMMA_NAMES = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def write_folder(
    directory: Path, arch: str, shape: tiny.TinyShape, tensors: dict[str, tiny.StoredTensor]
) -> Path:
    """Write config.json, model.safetensors, tokenizer.json and tokenizer_config.json."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(hf_config(arch, shape), indent=1))
    save_file(hf_tensors(shape, tensors), directory / "model.safetensors", {"format": "pt"})
    _write_tokenizer(directory)
    return directory


def hf_config(arch: str, shape: tiny.TinyShape) -> dict[str, Any]:
    """Return config.json in the form published folders have."""
    model_type, class_name = _CLASSES[arch]
    config: dict[str, Any] = {
        "architectures": [class_name],
        "model_type": model_type,
        "vocab_size": VOCAB_SIZE,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.ffn_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.max_context,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_base,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "float32",
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": 0,
    }
    config |= {"sliding_window": shape.window or None} if arch in ("mistral", "phi3") else {}
    if shape.architecture.startswith("gemma"):
        config |= {
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": shape.head_dim,
            "sliding_window": shape.window,
            "attn_logit_softcapping": 50.0 if shape.architecture == "gemma2" else None,
            "final_logit_softcapping": 30.0 if shape.architecture == "gemma2" else None,
        }
    else:
        config["hidden_act"] = "silu"
    if shape.architecture == "gemma3":
        config |= {"rope_local_base_freq": 10000.0, "sliding_window_pattern": 6}
    if shape.rotated_dims != shape.head_dim:
        config["partial_rotary_factor"] = shape.rotated_dims / shape.head_dim
    return config | _rope_scaling(shape)


def _rope_scaling(shape: tiny.TinyShape) -> dict[str, Any]:
    if shape.scaling == "linear":
        return {"rope_scaling": {"rope_type": "linear", "factor": tiny.LINEAR_FACTOR}}
    if shape.scaling == "llama3":
        original = {"original_max_position_embeddings": shape.original_context}
        return {"rope_scaling": {"rope_type": "llama3", **tiny.LLAMA3, **original}}
    if shape.scaling == "yarn":
        original = {"original_max_position_embeddings": shape.original_context}
        return {"rope_scaling": {"type": "yarn", "factor": tiny.YARN_FACTOR, **original}}
    if shape.scaling == "longrope":
        short, long = (factors.tolist() for factors in tiny.longrope_factors(shape))
        scaling = {"type": "longrope", "short_factor": short, "long_factor": long}
        return {"rope_scaling": scaling, "original_max_position_embeddings": shape.original_context}
    return {}


def hf_tensors(shape: tiny.TinyShape, tensors: dict[str, tiny.StoredTensor]) -> dict[str, Floats]:
    """Return the float32 weights under Hugging Face's names and in its conventions."""
    gemma = shape.architecture.startswith("gemma")
    layer_names = _LAYER_NAMES | (_GEMMA_NAMES if gemma else {})
    top = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    top["output.weight"] = "lm_head.weight"
    result: dict[str, Floats] = {}
    for name, tensor in tensors.items():
        values = tensor.floats()
        if gemma and "norm" in name:
            values = values - 1
        if name in top:
            result[top[name]] = values
            continue
        _, layer, part, suffix = name.split(".")
        if shape.architecture == "llama" and part in ("attn_q", "attn_k"):
            values = _halves_from_pairs(values, shape.head_dim)
        result[f"model.layers.{layer}.{layer_names[part]}.{suffix}"] = values
    if shape.architecture == "phi3":
        _fuse(result, shape.num_layers)
    return {name: np.ascontiguousarray(values) for name, values in result.items()}


def _halves_from_pairs(values: Floats, head_dim: int) -> Floats:
    """Undo the converter's permutation: rows that rotate as neighbours become rows that rotate as halves."""
    heads = values.reshape(-1, head_dim // 2, 2, values.shape[1])
    return heads.swapaxes(1, 2).reshape(values.shape)


def _fuse(tensors: dict[str, Floats], num_layers: int) -> None:
    fused = {
        "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
    }
    take: Callable[[str], Floats] = tensors.pop
    for layer in range(num_layers):
        prefix = f"model.layers.{layer}."
        for target, parts in fused.items():
            pieces = [take(f"{prefix}{part}.weight") for part in parts]
            tensors[f"{prefix}{target}.weight"] = np.concatenate(pieces)


def _write_tokenizer(directory: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocab = {token: index for index, token in enumerate(TOKENS)}
    tokenizer = Tokenizer(models.BPE(vocab, [tuple(merge.split(" ")) for merge in MERGES]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": TOKENS[BOS_ID],
        "eos_token": TOKENS[EOS_ID],
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
