"""From the config.json of an EAGLE-3 head to its ``Eagle3Spec``.

Two forms exist. The flat one (SafeAILab, SpecForge) is a Llama config with ``draft_vocab_size``; the nested
one (speculators) keeps that config under ``transformer_layer_config``. The layers whose states are captured
are numbered in two ways: ``eagle_config.eagle_aux_hidden_state_layer_ids`` counts *outputs* (id + 1 in
``Eagle3Spec``), the same key at the top level counts *inputs*. See eagle3.md, "Formats to load".
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.errors import ModelFileError, nearest_name
from paceline.models.eagle3_spec import Eagle3Spec
from paceline.models.eagle3_tensors import is_state_norm
from paceline.models.hf_config import (
    MAX_LAYERS,
    MAX_WIDTH,
    MODEL_TYPES,
    HfConfig,
    spec_from_config,
    windows_by_kind,
)
from paceline.models.metadata import Metadata
from paceline.models.spec import ModelSpec

LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
MODEL_KINDS = ("llama", "mistral", "qwen2", "qwen3")
"""Values of model_type whose layers a head may be made of: SwiGLU, RMSNorm, plain attention."""
_QKV_BIASES = (".attn_q.bias", ".attn_k.bias", ".attn_v.bias")
_DEFAULT_STATES = 3
_LAYER_NAME = re.compile(r"blk\.([0-9]{1,4})\.")


def spec_from_head_config(values: dict[str, Any], path: Path, names: Collection[str]) -> Eagle3Spec:
    """Return the spec of a head with the tensors ``names`` (ours, see ``Eagle3Files.source``).

    What the config does not say is recognised by the tensors present; where it does say, the config is
    believed. Raises ``ModelFileError`` for a value that is missing, wrong or not supported.
    """
    top = Metadata({key: value for key, value in values.items() if value is not None}, path)
    nested = _nested_config(values, path)
    layer_values = dict(values) if nested is None else dict(nested)
    layer_values["num_hidden_layers"] = _num_layers(layer_values, path, names)
    config = _layer_config(layer_values, path)
    base = spec_from_config(config, _has(names, ".attn_q.bias"), None)
    states = _state_layers(top)
    return replace(
        head_like(base),
        name=top.text("_name_or_path", "") or path.parent.name,
        target_hidden_size=top.integer("target_hidden_size", base.hidden_size, high=MAX_WIDTH),
        draft_vocab_size=top.integer("draft_vocab_size", base.vocab_size, high=base.vocab_size),
        layer_windows=_windows(config, base),
        num_states=_DEFAULT_STATES if states is None else len(states),
        state_layers=states,
        norm_before_residual=top.flag("norm_before_residual", False),
        # SpecForge's flat norm_output only says that a norm stands before the head, which it always does.
        norm_output=nested is not None and top.flag("norm_output", False),
        has_input_norm=top.flag("norm_before_fc", "input_norm.weight" in names),
        has_state_norms=top.flag("fc_norm", any(is_state_norm(name) for name in names)),
        has_embedding="token_embd.weight" in names,
        has_head="output.weight" in names,
        has_qkv_bias=config.fields.flag("attention_bias", False) or _has(names, *_QKV_BIASES),
        has_output_bias=_has(names, ".attn_output.bias"),
        has_qk_norm=base.has_qk_norm or _has(names, ".attn_q_norm.weight", ".attn_k_norm.weight"),
    )


def head_like(base: ModelSpec) -> Eagle3Spec:
    """Return the plain head whose layers are those of ``base`` and whose widths and ids are its target's."""
    return Eagle3Spec(
        name=base.name,
        hidden_size=base.hidden_size,
        target_hidden_size=base.hidden_size,
        num_layers=base.num_layers,
        num_heads=base.num_heads,
        num_kv_heads=base.num_kv_heads,
        head_dim=base.head_dim,
        ffn_size=base.ffn_size,
        vocab_size=base.vocab_size,
        draft_vocab_size=base.vocab_size,
        max_context=base.max_context,
        norm_eps=base.norm_eps,
        rope=base.ropes[0],
        layer_windows=base.layer_windows,
    )


def _has(names: Collection[str], *endings: str) -> bool:
    return any(name.endswith(endings) for name in names)


def _nested_config(values: dict[str, Any], path: Path) -> dict[str, Any] | None:
    """Return speculators' ``transformer_layer_config``, or ``None`` for a flat config."""
    kind = values.get("speculators_model_type")
    nested = values.get("transformer_layer_config")
    if kind is None and nested is None:
        return None
    if kind != "eagle3":
        raise ModelFileError(
            f"{path} has speculators_model_type = {kind!r:.40}; only 'eagle3' heads can be loaded"
        )
    if not isinstance(nested, dict):
        raise ModelFileError(f"{path} has no table transformer_layer_config: download the head again")
    return nested


def _layer_config(values: dict[str, Any], path: Path) -> HfConfig:
    values.setdefault("model_type", "llama")
    kind = values["model_type"]
    if kind not in MODEL_KINDS:
        known = nearest_name(kind, MODEL_TYPES) if isinstance(kind, str) else ""
        raise ModelFileError(
            f"{path} is made of layers of type {kind!r:.40}{known}; supported are {', '.join(MODEL_KINDS)}"
        )
    return HfConfig(values, path)


def _num_layers(values: dict[str, Any], path: Path, names: Collection[str]) -> int:
    """Return the number of decoder layers.

    Some heads were published with the target's ``num_hidden_layers`` in their config, so that a file with one
    layer may state 40: a head without any further layer has one.
    """
    indices = [int(match[1]) for name in names if (match := _LAYER_NAME.match(name))]
    found = max(indices, default=0) + 1
    if found == 1:
        return 1
    stated = Metadata({k: v for k, v in values.items() if v is not None}, path)
    return max(found, stated.integer("num_hidden_layers", found, high=MAX_LAYERS))


def _windows(config: HfConfig, base: ModelSpec) -> tuple[int, ...]:
    """Return each layer's window; Llama configs of heads may state one, which Llama models never do."""
    if config.model_type != "llama":
        return base.layer_windows
    window = config.fields.integer("sliding_window", 0, low=0)
    kinds = config.values.get("layer_types")
    if kinds is not None:
        return windows_by_kind(config, kinds, window)
    return (window if config.fields.flag("use_sliding_window", False) else 0,) * base.num_layers


def _state_layers(top: Metadata) -> tuple[int, ...] | None:
    """Return the captured layers by their inputs, or ``None`` where the config leaves the default."""
    by_input = _ids(top, LAYER_IDS, top.values.get(LAYER_IDS))
    eagle = top.values.get("eagle_config")
    if eagle is None:
        return by_input
    if not isinstance(eagle, dict):
        raise top.wrong("eagle_config", eagle, "a table")
    if eagle.get("use_aux_hidden_state") is False:
        raise ModelFileError(
            f"{top.path} has eagle_config.use_aux_hidden_state = false: it is an EAGLE-1 head, which reads "
            "one state; only EAGLE-3 heads can be loaded"
        )
    outputs = _ids(top, f"eagle_config.{LAYER_IDS}", eagle.get(LAYER_IDS))
    by_output = None if outputs is None else tuple(layer + 1 for layer in outputs)
    if by_input is not None and by_output is not None and by_input != by_output:
        raise ModelFileError(
            f"{top.path} names the captured layers twice and differently: {list(by_input)} by their inputs, "
            f"and by their outputs (eagle_config) {[layer - 1 for layer in by_output]}: remove the wrong one"
        )
    return by_input if by_output is None else by_output


def _ids(top: Metadata, key: str, value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    good = isinstance(value, list) and value and all(type(i) is int and 0 <= i <= MAX_LAYERS for i in value)
    if not isinstance(value, list) or not good:
        raise top.wrong(key, value, "a list of layer numbers")
    return tuple(value)
