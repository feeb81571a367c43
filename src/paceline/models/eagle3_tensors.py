"""The tensors of an EAGLE-3 head: which there are, how files name them, whether their values are numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from paceline.errors import ModelFileError
from paceline.models import ggml_types
from paceline.models.eagle3_spec import Eagle3Spec
from paceline.models.hf_source import LAYER_NAMES
from paceline.models.spec import TensorInfo, TensorSource

TOP_NAMES = {
    "fc.weight": "fc.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "embed_tokens.weight": "token_embd.weight",
    "input_norm.weight": "input_norm.weight",
}
_PART_NAMES = {**LAYER_NAMES, "hidden_norm": "attn_norm_2"}
_FILE_PARTS = {ours: theirs for theirs, ours in _PART_NAMES.items()}
_LAYER = re.compile(r"(?:midlayer|(layers|additional_layers)\.(\d{1,4}))\.(.+)\.(weight|bias)")
_FC_NORM = re.compile(r"fc_norm\.\d+\.weight")
_CHUNK_BYTES = 4 << 20
# Exponent bits, all of them set in NaN and infinity: storage type → (numpy type, mask).
_EXPONENTS: Mapping[int, tuple[str, int]] = {
    ggml_types.F32.number: ("<u4", 0x7F800000),
    ggml_types.F16.number: ("<u2", 0x7C00),
    ggml_types.BF16.number: ("<u2", 0x7F80),
}


def head_shapes(spec: Eagle3Spec) -> dict[str, tuple[int, ...]]:
    """Return name → shape of every tensor of a head, under the names of ``Eagle3Files.source``."""
    hidden, states = spec.hidden_size, spec.num_states * spec.target_hidden_size
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (hidden, states), "output_norm.weight": (hidden,)}
    if spec.has_head:
        shapes["output.weight"] = (spec.draft_vocab_size, hidden)
    if spec.has_embedding:
        shapes["token_embd.weight"] = (spec.vocab_size, hidden)
    if spec.has_input_norm:
        shapes["input_norm.weight"] = (states,)
    if spec.has_state_norms:
        shapes |= {f"fc_norm.{i}.weight": (spec.target_hidden_size,) for i in range(spec.num_states)}
    shapes["blk.0.attn_norm_2.weight"] = (hidden,)
    for layer in range(spec.num_layers):
        parts = _layer_shapes(spec, hidden if layer else 2 * hidden)
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in parts.items()}
    return shapes


def _layer_shapes(spec: Eagle3Spec, columns: int) -> dict[str, tuple[int, ...]]:
    """Return one layer's shapes; its q, k and v read ``columns`` values."""
    hidden, ffn = spec.hidden_size, spec.ffn_size
    query_rows, key_rows = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (hidden,),
        "attn_q.weight": (query_rows, columns),
        "attn_k.weight": (key_rows, columns),
        "attn_v.weight": (key_rows, columns),
        "attn_output.weight": (hidden, query_rows),
        "ffn_norm.weight": (hidden,),
        "ffn_gate.weight": (ffn, hidden),
        "ffn_up.weight": (ffn, hidden),
        "ffn_down.weight": (hidden, ffn),
    }
    if spec.has_qkv_bias:
        shapes |= {"attn_q.bias": (query_rows,), "attn_k.bias": (key_rows,), "attn_v.bias": (key_rows,)}
    if spec.has_output_bias:
        shapes["attn_output.bias"] = (hidden,)
    if spec.has_qk_norm:
        shapes |= {"attn_q_norm.weight": (spec.head_dim,), "attn_k_norm.weight": (spec.head_dim,)}
    return shapes


# ---- names in folders ----


def without_prefix(names: Iterable[str], place: object) -> dict[str, str]:
    """Return file name → the same without a leading ``model.``. Raises ``ModelFileError`` for two alike."""
    bare: dict[str, str] = {}
    seen: dict[str, str] = {}
    for name in names:
        bare[name] = name.removeprefix("model.")
        if bare[name] in seen:
            raise ModelFileError(f"{place} holds both {seen[bare[name]]!r} and {name!r}: save the head again")
        seen[bare[name]] = name
    return bare


def our_name(name: str) -> str:
    """Return the name in ``Eagle3Files.source`` of a file's (bare) name; an unknown one keeps its own."""
    layer = _LAYER.fullmatch(name)
    if layer is None or layer[3] not in _PART_NAMES:
        return TOP_NAMES.get(name, name)
    index = 0 if layer[1] is None else int(layer[2]) + (layer[1] == "additional_layers")
    return f"blk.{index}.{_PART_NAMES[layer[3]]}.{layer[4]}"


def file_name(name: str, style: str) -> str:
    """Return how a folder calls one of our names; ``style``: ``midlayer`` or ``layers``."""
    for theirs, ours in TOP_NAMES.items():
        if ours == name:
            return theirs
    if not name.startswith("blk."):
        return name
    _, index, part, suffix = name.split(".")
    first, more = ("midlayer", f"additional_layers.{int(index) - 1}")
    where = f"layers.{index}" if style == "layers" else more if int(index) else first
    return f"{where}.{_FILE_PARTS[part]}.{suffix}"


def is_state_norm(name: str) -> bool:
    """Return whether a name is one of ``fc_norm.0.weight``, ``fc_norm.1.weight``, …"""
    return _FC_NORM.fullmatch(name) is not None


# ---- values ----


def check_values(source: TensorSource, names: Mapping[str, str] | None = None) -> None:
    """Raise ``ModelFileError`` naming the first tensor that holds NaN or infinity; ``names``: file's names.

    Reads everything once, in pieces. One such weight would make every draft a silent NaN.
    """
    for name, info in source.tensors.items():
        rows = info.shape[0] if len(info.shape) > 1 else 1
        step = max(1, _CHUNK_BYTES // max(info.row_bytes, 1))
        for start in range(0, rows, step):
            piece = source.read_rows(name, start, min(step, rows - start))
            if not _are_finite(piece, info):
                raise ModelFileError(
                    f"tensor {(names or {}).get(name, name)!r} holds NaN or infinity: the head is damaged or "
                    "its training diverged; take another one"
                )


def _are_finite(piece: npt.NDArray[np.uint8], info: TensorInfo) -> bool:
    exponent = _EXPONENTS.get(info.ggml_type)
    if exponent is None:
        from gguf import GGMLQuantizationType, dequantize

        rows = piece.reshape(-1, info.row_bytes)
        with np.errstate(all="ignore"):
            return bool(np.isfinite(dequantize(rows, GGMLQuantizationType(info.ggml_type))).all())
    kind, mask = exponent
    return not bool(((piece.view(kind) & mask) == mask).any())
