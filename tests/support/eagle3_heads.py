"""Tiny random EAGLE-3 heads of every variant, and how each public format stores them.

>>> head = tiny_head("norms")                       # spec, weights under our names, draft vocabulary
>>> write_head(tmp_path / "head", head, "speculators", storage="bf16")

Weights are small whole numbers times powers of two, so float32, float16 and bfloat16 hold them exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from paceline.models.eagle3_spec import Eagle3Spec
from paceline.models.rope import plain_frequencies
from paceline.models.spec import RopeSpec
from support.tiny_tokenizer import VOCAB_SIZE

Floats = npt.NDArray[np.float32]
Format = Literal["safeailab", "specforge", "speculators", "gguf"]
ROPE_BASE = 10000.0

_PLAIN = Eagle3Spec(
    name="tiny head",
    hidden_size=64,
    target_hidden_size=64,
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    ffn_size=96,
    vocab_size=VOCAB_SIZE,
    draft_vocab_size=96,
    max_context=1024,
    norm_eps=1e-5,
    rope=RopeSpec(tuple(plain_frequencies(ROPE_BASE, 16).tolist()), "half_split"),
    layer_windows=(0,),
)
_CHANGES: dict[str, dict[str, Any]] = {
    "plain": {},
    "identity": {"draft_vocab_size": VOCAB_SIZE},
    "shared_head": {"has_head": False},
    "embedding": {"has_embedding": True},
    "wide": {"hidden_size": 96, "num_heads": 6, "has_embedding": True},
    "head_dim": {"head_dim": 32, "rope": RopeSpec(tuple(plain_frequencies(1e6, 32).tolist()), "half_split")},
    "residual": {"norm_before_residual": True},
    "input_norm": {"norm_before_residual": True, "has_input_norm": True},
    "state_norms": {"has_state_norms": True},
    "eagle31": {"has_state_norms": True, "norm_output": True},
    "qk_norm": {"has_qk_norm": True},
    "biases": {"has_qkv_bias": True},
    "output_bias": {"has_qkv_bias": True, "has_output_bias": True},
    "window": {"layer_windows": (24,)},
    "layers": {"num_layers": 3, "layer_windows": (0, 0, 0)},
    "layer_windows": {"num_layers": 2, "layer_windows": (0, 16), "norm_output": True, "has_qk_norm": True},
    "four_states": {"num_states": 4},
}
HEAD_VARIANTS = tuple(_CHANGES)
_FLAT = ("plain", "identity", "shared_head", "embedding", "wide")
FORMAT_VARIANTS: dict[Format, tuple[str, ...]] = {
    "safeailab": _FLAT,
    "specforge": (*_FLAT, "head_dim", "state_norms", "layers", "four_states"),
    "speculators": HEAD_VARIANTS,
    "gguf": (*_FLAT, "head_dim", "residual"),
}
"""The variants each format can express."""


@dataclass(frozen=True, slots=True)
class TinyHead:
    """A head: ``weights`` float32 under the names of ``Eagle3Files.source``; ids int32 [Vd], rising."""

    spec: Eagle3Spec
    weights: dict[str, Floats]
    draft_to_target: npt.NDArray[np.int32]


def tiny_spec(variant: str = "plain", **changes: Any) -> Eagle3Spec:
    """Return the spec of a variant; ``changes`` replace fields (``state_layers=(0, 1, 2)``, …)."""
    return replace(_PLAIN, **{**_CHANGES[variant], **changes})


def tiny_head(variant: str = "plain", seed: int = 0, **changes: Any) -> TinyHead:
    """Return a random head of ``variant`` whose logits spread by a few units."""
    spec = tiny_spec(variant, **changes)
    rng = np.random.default_rng([seed, HEAD_VARIANTS.index(variant)])
    weights = {name: _random(name, shape, rng) for name, shape in head_shapes(spec).items()}
    chosen = np.sort(rng.choice(spec.vocab_size, spec.draft_vocab_size, replace=False))
    return TinyHead(spec, weights, chosen.astype(np.int32))


def head_shapes(spec: Eagle3Spec) -> dict[str, tuple[int, ...]]:
    """Return name → shape of every tensor of a head, written out apart from the loader's own list."""
    width = spec.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (width, spec.num_states * spec.target_hidden_size),
        "output_norm.weight": (width,),
        "blk.0.attn_norm_2.weight": (width,),
    }
    if spec.has_head:
        shapes["output.weight"] = (spec.draft_vocab_size, width)
    if spec.has_embedding:
        shapes["token_embd.weight"] = (spec.vocab_size, width)
    if spec.has_input_norm:
        shapes["input_norm.weight"] = (spec.num_states * spec.target_hidden_size,)
    if spec.has_state_norms:
        shapes |= {f"fc_norm.{i}.weight": (spec.target_hidden_size,) for i in range(spec.num_states)}
    for layer in range(spec.num_layers):
        columns = width if layer else 2 * width
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in _layer_shapes(spec, columns).items()}
    return shapes


def _layer_shapes(spec: Eagle3Spec, columns: int) -> dict[str, tuple[int, ...]]:
    width, ffn = spec.hidden_size, spec.ffn_size
    queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (width,),
        "attn_q.weight": (queries, columns),
        "attn_k.weight": (keys, columns),
        "attn_v.weight": (keys, columns),
        "attn_output.weight": (width, queries),
        "ffn_norm.weight": (width,),
        "ffn_gate.weight": (ffn, width),
        "ffn_up.weight": (ffn, width),
        "ffn_down.weight": (width, ffn),
    }
    if spec.has_qkv_bias:
        shapes |= {"attn_q.bias": (queries,), "attn_k.bias": (keys,), "attn_v.bias": (keys,)}
    if spec.has_output_bias:
        shapes["attn_output.bias"] = (width,)
    if spec.has_qk_norm:
        shapes |= {"attn_q_norm.weight": (spec.head_dim,), "attn_k_norm.weight": (spec.head_dim,)}
    return shapes


def _random(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    if len(shape) == 1:
        middle = 0.0 if name.endswith(".bias") else 1.0
        return (middle + rng.integers(-24, 25, shape) / 64).astype(np.float32)
    deviation = 0.5 if name in ("token_embd.weight", "output.weight") else 1.2 * shape[1] ** -0.5
    step = 2.0 ** np.round(np.log2(deviation / 73.3))
    return (rng.integers(-127, 128, shape) * step).astype(np.float32)


def write_head(
    path: Path,
    head: TinyHead,
    form: Format = "speculators",
    *,
    storage: str = "f32",
    container: str = "safetensors",
    **config: Any,
) -> Path:
    """Write a head in a public format; return its folder (its file for ``gguf``).

    ``storage``: f32, f16 or bf16. ``container``: safetensors, sharded, or bin (torch's zip form, made without
    torch). ``config`` replaces top-level fields of config.json; ``None`` removes one.
    """
    if form == "gguf":
        from support.eagle3_gguf import write_gguf_head

        return write_gguf_head(path, head)
    from support.eagle3_folders import write_folder_head

    return write_folder_head(path, head, form, storage, container, config)
