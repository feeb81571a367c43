"""From a Hugging Face config.json to a ``ModelSpec``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline.errors import ModelFileError, nearest_name
from paceline.models import hf_rope
from paceline.models.families import FAMILIES, Family, windows_by_period
from paceline.models.metadata import Metadata
from paceline.models.spec import ModelSpec

MODEL_TYPES = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
}
"""Hugging Face's model_type → the family that computes it."""
_HEAD_DIMS = {"qwen3": 128, "gemma2": 256, "gemma3": 256}
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
_TIED = ("gemma2", "gemma3")
MAX_LAYERS = 1024
MAX_WIDTH = 1 << 20


class HfConfig:
    """A config.json, read field by field; ``values`` keeps explicit nulls apart from absent keys."""

    def __init__(self, values: dict[str, Any], path: Path) -> None:
        self.values = values
        self.path = path
        self.fields = Metadata({key: value for key, value in values.items() if value is not None}, path)
        self.model_type = self.fields.text("model_type")
        if self.model_type not in MODEL_TYPES:
            raise ModelFileError(
                f"{path} is a model of type {self.model_type!r}{nearest_name(self.model_type, MODEL_TYPES)}; "
                f"supported are {', '.join(MODEL_TYPES)}"
            )
        self.architecture = MODEL_TYPES[self.model_type]
        self.family: Family = FAMILIES[self.architecture]

    @property
    def num_heads(self) -> int:
        return self.fields.integer("num_attention_heads", high=MAX_WIDTH)

    @property
    def num_kv_heads(self) -> int:
        kv_heads = self.fields.integer("num_key_value_heads", self.num_heads, high=self.num_heads)
        if self.num_heads % kv_heads:
            raise self.fields.wrong("num_key_value_heads", kv_heads, f"a divisor of {self.num_heads}")
        return kv_heads

    @property
    def head_dim(self) -> int:
        hidden = self.fields.integer("hidden_size", high=MAX_WIDTH)
        default = _HEAD_DIMS.get(self.architecture, max(hidden // self.num_heads, 1))
        return self.fields.integer("head_dim", default, high=MAX_WIDTH)

    @property
    def num_layers(self) -> int:
        return self.fields.integer("num_hidden_layers", high=MAX_LAYERS)

    @property
    def ffn_size(self) -> int:
        return self.fields.integer("intermediate_size", high=MAX_WIDTH)

    @property
    def is_tied(self) -> bool:
        return self.fields.flag("tie_word_embeddings", self.architecture in _TIED)


def spec_from_config(config: HfConfig, has_qkv_bias: bool, max_context: int | None) -> ModelSpec:
    """Return the spec. Raises ``ModelFileError`` for a value that is missing, wrong or not supported."""
    fields, family = config.fields, config.family
    _check_activation(config)
    if fields.flag("use_bidirectional_attention", False):
        raise ModelFileError(f"{config.path} is a bidirectional (embedding) model; it cannot generate text")
    hidden = fields.integer("hidden_size", high=MAX_WIDTH)
    ropes, context = hf_rope.build_ropes(config, max_context)
    windows = _windows(config)
    return ModelSpec(
        architecture=config.architecture,
        name=fields.text("_name_or_path", "") or config.path.parent.name,
        num_layers=config.num_layers,
        hidden_size=hidden,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        ffn_size=config.ffn_size,
        vocab_size=fields.integer("vocab_size"),
        max_context=context,
        norm_eps=fields.number("rms_norm_eps", 1e-5 if config.architecture == "phi3" else 1e-6),
        activation=family.activation,
        ropes=ropes,
        layer_ropes=tuple(int(len(ropes) > 1 and window > 0) for window in windows),
        layer_windows=windows,
        attention_scale=_attention_scale(config),
        attention_softcap=_softcap(config, "attn_logit_softcapping", family.attention_softcap),
        final_softcap=_softcap(config, "final_logit_softcapping", family.final_softcap),
        embedding_scale=hidden**0.5 if family.scales_embedding else 1.0,
        tied_head=config.is_tied,
        has_qkv_bias=has_qkv_bias,
        has_qk_norm=family.has_qk_norm,
        has_post_norms=family.has_post_norms,
    )


def _check_activation(config: HfConfig) -> None:
    """Refuse an activation other than the family's. Gemma's ``hidden_act`` is ignored by its own code."""
    is_gemma = config.architecture.startswith("gemma")
    key = "hidden_activation" if is_gemma else "hidden_act"
    stated = config.fields.text(key, "gelu_pytorch_tanh" if is_gemma else "silu")
    if _ACTIVATIONS.get(stated) != config.family.activation:
        raise config.fields.wrong(key, stated, "'gelu_pytorch_tanh'" if is_gemma else "'silu'")


def _softcap(config: HfConfig, key: str, default: float) -> float:
    """Return a soft cap; an explicit null means none, an absent key the family's own."""
    if key in config.values:
        return config.fields.number(key, 0.0, positive=False)
    return default


def _attention_scale(config: HfConfig) -> float:
    if config.architecture.startswith("gemma"):
        return float(config.fields.number("query_pre_attn_scalar", 256.0) ** -0.5)
    return float(config.head_dim**-0.5)


def _windows(config: HfConfig) -> tuple[int, ...]:
    """Return each layer's sliding window (0 for full attention)."""
    fields, num_layers = config.fields, config.num_layers
    default = 4096 if config.architecture in ("gemma2", "gemma3") else 0
    window = fields.integer("sliding_window", default, low=0)
    if config.model_type == "llama":
        return (0,) * num_layers
    if config.architecture.startswith("qwen") and not fields.flag("use_sliding_window", False):
        return (0,) * num_layers
    kinds = config.values.get("layer_types")
    if kinds is not None:
        return windows_by_kind(config, kinds, window)
    if config.architecture.startswith("qwen"):
        first = fields.integer("max_window_layers", 28, low=0)
        return tuple(window if layer >= first else 0 for layer in range(num_layers))
    if config.architecture == "gemma3":
        period = fields.integer("sliding_window_pattern", config.family.window_period)
        return windows_by_period(num_layers, window, period)
    return windows_by_period(num_layers, window, config.family.window_period)


def windows_by_kind(config: HfConfig, kinds: object, window: int) -> tuple[int, ...]:
    """Return each layer's window by the names in ``layer_types``."""
    known = {"sliding_attention": window, "full_attention": 0}
    is_list = isinstance(kinds, list) and all(isinstance(kind, str) and kind in known for kind in kinds)
    if not isinstance(kinds, list) or not is_list or len(kinds) != config.num_layers:
        wanted = f"one of {' and '.join(known)} for each of the {config.num_layers} layers"
        raise config.fields.wrong("layer_types", kinds, wanted)
    return tuple(known[kind] for kind in kinds)
