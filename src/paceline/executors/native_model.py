"""Repack the tensors of a model or of an EAGLE-3 head for the native executor."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from paceline.errors import ModelFileError
from paceline.models.eagle3_spec import Eagle3Files, Eagle3Spec
from paceline.models.spec import GGML_VECTOR_DTYPES, ModelSpec, RopeSpec, TensorInfo, TensorSource
from paceline.native import _core
from paceline.records import FloatArray

_READ_BYTES = 4 << 20
_WEIGHTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_down")
_GATE_UP = ("ffn_gate", "ffn_up")
_VECTORS = (
    "attn_norm.weight",
    "attn_norm_2.weight",
    "ffn_norm.weight",
    "post_attention_norm.weight",
    "post_ffw_norm.weight",
    "attn_q_norm.weight",
    "attn_k_norm.weight",
    "attn_q.bias",
    "attn_k.bias",
    "attn_v.bias",
    "attn_output.bias",
)


def native_model(spec: ModelSpec, source: TensorSource, *, float32: bool = False) -> _core.Model:
    """Repack the tensors of ``source`` for the native executor.

    ``float32=True`` expands every weight to float32, the reference for accuracy; otherwise GGUF blocks keep
    their values and sizes. ``source`` stays open.
    """
    model = _core.Model(
        layers=spec.num_layers,
        hidden=spec.hidden_size,
        heads=spec.num_heads,
        kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        ffn=spec.ffn_size,
        vocab=spec.vocab_size,
        outputs=spec.vocab_size,
        eps=spec.norm_eps,
        gelu=spec.activation == "gelu_tanh",
        attention_scale=spec.attention_scale,
        attention_softcap=spec.attention_softcap,
        final_softcap=spec.final_softcap,
        embedding_scale=spec.embedding_scale,
        ropes=[_rope(r) for r in spec.ropes],
        layer_ropes=list(spec.layer_ropes),
        layer_windows=list(spec.layer_windows),
    )
    for name in ("token_embd",) if spec.tied_head else ("token_embd", "output"):
        _add_weight(model, source, -1, name, float32)
    _set_vectors(model, source, -1, ("output_norm.weight",))
    _add_layers(model, source, spec.num_layers, float32)
    return model


def native_head(files: Eagle3Files, target: _core.Model, *, float32: bool = False) -> _core.Model:
    """Repack the tensors of an EAGLE-3 head.

    Tables that it does not bring are the target's: its embedding is read where it lies, its head's rows of
    the draft vocabulary are copied as they are stored. The embedding is read *unscaled*, also of a target
    that multiplies it (Gemma): public heads are trained with the plain table, and ``input_layernorm`` takes
    a scale out again but for its epsilon.
    """
    spec, source = files.spec, files.source
    model = _empty_head(spec)
    model.set_pairs(
        states=spec.num_states,
        state_width=spec.target_hidden_size,
        norm_before_residual=spec.norm_before_residual,
        norm_output=spec.norm_output,
        target=None if spec.has_embedding else target,
    )
    tables = {"token_embd": spec.has_embedding, "output": spec.has_head, "fc": True}
    for name in (name for name, is_own in tables.items() if is_own):
        _add_weight(model, source, -1, name, float32)
    if not spec.has_head:
        model.take_output_rows(target, files.draft_to_target)
    norms = ("input_norm.weight", *(f"fc_norm.{i}.weight" for i in range(spec.num_states)))
    _set_vectors(model, source, -1, ("output_norm.weight", *norms))
    _add_layers(model, source, spec.num_layers, float32)
    return model


def _empty_head(spec: Eagle3Spec) -> _core.Model:
    return _core.Model(
        layers=spec.num_layers,
        hidden=spec.hidden_size,
        heads=spec.num_heads,
        kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        ffn=spec.ffn_size,
        vocab=spec.vocab_size,
        outputs=spec.draft_vocab_size,
        eps=spec.norm_eps,
        gelu=False,
        attention_scale=spec.head_dim**-0.5,
        attention_softcap=0.0,
        final_softcap=0.0,
        embedding_scale=1.0,
        ropes=[_rope(spec.rope)],
        layer_ropes=[0] * spec.num_layers,
        layer_windows=list(spec.layer_windows),
    )


def _rope(rope: RopeSpec) -> tuple[list[float], bool, float]:
    return list(rope.inverse_frequencies), rope.style == "interleaved", rope.attention_factor


def _add_layers(model: _core.Model, source: TensorSource, num_layers: int, float32: bool) -> None:
    for layer in range(num_layers):
        for name in _WEIGHTS:
            _add_weight(model, source, layer, name, float32)
        _add_gate_up(model, source, layer, float32)
        _set_vectors(model, source, layer, _VECTORS)


def _add_weight(model: _core.Model, source: TensorSource, layer: int, name: str, float32: bool) -> None:
    info = source.tensors[f"{_full_name(layer, name)}.weight"]
    rows, cols = info.shape
    model.add_weight(layer, name, rows, cols, info.ggml_type, float32)
    _load_rows(model, source, layer, name)


def _add_gate_up(model: _core.Model, source: TensorSource, layer: int, float32: bool) -> None:
    gate, up = (source.tensors[f"{_full_name(layer, name)}.weight"] for name in _GATE_UP)
    if gate.shape != up.shape:
        raise ModelFileError(f"{gate.name} is {gate.shape} but {up.name} is {up.shape}: they must be alike")
    rows, cols = gate.shape
    model.add_gate_up(layer, rows, cols, gate.ggml_type, up.ggml_type, float32)
    for name in _GATE_UP:
        _load_rows(model, source, layer, name)


def _full_name(layer: int, name: str) -> str:
    return name if layer < 0 else f"blk.{layer}.{name}"


def _load_rows(model: _core.Model, source: TensorSource, layer: int, name: str) -> None:
    info = source.tensors[f"{_full_name(layer, name)}.weight"]
    rows, piece = info.shape[0], _rows_at_a_time(info)
    for start in range(0, rows, piece):
        data = source.read_rows(info.name, start, min(piece, rows - start))
        model.load_rows(layer, name, start, info.ggml_type, data)


def _rows_at_a_time(info: TensorInfo) -> int:
    return max(16, _READ_BYTES // info.row_bytes // 16 * 16)


def _set_vectors(model: _core.Model, source: TensorSource, layer: int, names: Iterable[str]) -> None:
    """Hand over those of the vectors that the source has."""
    for name in names:
        if (full := _full_name(layer, name)) in source.tensors:
            model.set_vector(layer, name, _read_vector(source, full))


def _read_vector(source: TensorSource, name: str) -> FloatArray:
    info = source.tensors[name]
    raw = source.read_rows(name, 0, 1)
    return np.ascontiguousarray(raw.view(GGML_VECTOR_DTYPES[info.ggml_type]), dtype=np.float32)
