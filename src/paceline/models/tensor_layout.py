"""Which tensors a model must have, and one message about all that are missing or wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paceline.errors import ModelFileError
from paceline.models.spec import ModelSpec, TensorInfo

MOST_NAMED = 12
"""Faults spelled out in one message; the rest is counted."""


def expected_tensors(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Return name → shape of every tensor of ``spec``: (rows, columns), a row being one output, or (n,)."""
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (spec.vocab_size, spec.hidden_size),
        "output_norm.weight": (spec.hidden_size,),
    }
    if not spec.tied_head:
        shapes["output.weight"] = (spec.vocab_size, spec.hidden_size)
    layer = _layer_tensors(spec)
    for index in range(spec.num_layers):
        shapes.update({f"blk.{index}.{name}": shape for name, shape in layer.items()})
    return shapes


def _layer_tensors(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    hidden, ffn = spec.hidden_size, spec.ffn_size
    query_rows, key_rows = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (hidden,),
        "attn_q.weight": (query_rows, hidden),
        "attn_k.weight": (key_rows, hidden),
        "attn_v.weight": (key_rows, hidden),
        "attn_output.weight": (hidden, query_rows),
        "ffn_norm.weight": (hidden,),
        "ffn_gate.weight": (ffn, hidden),
        "ffn_up.weight": (ffn, hidden),
        "ffn_down.weight": (hidden, ffn),
    }
    if spec.has_qkv_bias:
        shapes |= {"attn_q.bias": (query_rows,), "attn_k.bias": (key_rows,), "attn_v.bias": (key_rows,)}
    if spec.has_qk_norm:
        shapes |= {"attn_q_norm.weight": (spec.head_dim,), "attn_k_norm.weight": (spec.head_dim,)}
    if spec.has_post_norms:
        shapes |= {"post_attention_norm.weight": (hidden,), "post_ffw_norm.weight": (hidden,)}
    return shapes


def check_tensors(spec: ModelSpec, tensors: Mapping[str, TensorInfo], ignored: Iterable[str] = ()) -> None:
    """Hold ``tensors`` against ``spec``.

    Raises one ``ModelFileError`` that lists every missing tensor, every wrong shape (both shapes) and every
    tensor the architecture has no use for (leaving it out would change answers in silence).
    """
    shapes = {name: info.shape for name, info in tensors.items() if name not in set(ignored)}
    faults = layout_faults(expected_tensors(spec), shapes)
    if faults:
        raise layout_error(f"{spec.name}: its tensors do not make a {spec.architecture} model", faults)


def layout_faults(expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Return one phrase for every missing, wrong and unknown tensor."""
    faults = [f"{name} {list(shape)} is missing" for name, shape in expected.items() if name not in found]
    faults += [
        f"{name} is {list(found[name])}, expected {list(shape)}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    faults += [
        f"{name} is not known (it is {list(shape)})" for name, shape in found.items() if name not in expected
    ]
    return faults


def layout_error(what: str, faults: list[str], most_named: int = MOST_NAMED) -> ModelFileError:
    """Return the error that names the first ``most_named`` faults and counts the rest."""
    shown = "; ".join(faults[:most_named])
    more = f"; and {len(faults) - most_named} more" if len(faults) > most_named else ""
    return ModelFileError(
        f"{what}: {shown}{more}. "
        "The file is incomplete or of another architecture: download or convert it again"
    )
