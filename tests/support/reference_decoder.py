"""The reference: one decoder in float64 numpy, written to be read, for every supported architecture.

Weights are what gguf's own reference dequantises the stored blocks to. Nothing here is fast; the executors
are held against it.
"""

from __future__ import annotations

from functools import cached_property

import gguf
import numpy as np
import numpy.typing as npt

from paceline.models.spec import ModelSpec, RopeSpec, TensorSource

Array = npt.NDArray[np.float64]


def dequantised(source: TensorSource, name: str) -> npt.NDArray[np.float32]:
    """Return the values of one tensor, float32 in its shape, by ``gguf.dequantize``."""
    info = source.tensors[name]
    rows = info.shape[0] if len(info.shape) > 1 else 1
    data = source.read_rows(name, 0, rows).reshape(rows, info.row_bytes)
    values = gguf.dequantize(data, gguf.GGMLQuantizationType(info.ggml_type))
    return np.asarray(values, np.float32).reshape(info.shape)


class ReferenceDecoder:
    """Computes the logits of whole sequences, without a cache."""

    def __init__(self, spec: ModelSpec, source: TensorSource) -> None:
        self.spec = spec
        self._source = source
        self._weights: dict[str, Array] = {}

    def weight(self, name: str) -> Array:
        if name not in self._weights:
            self._weights[name] = dequantised(self._source, name).astype(np.float64)
        return self._weights[name]

    @cached_property
    def _head(self) -> Array:
        return self.weight("token_embd.weight" if self.spec.tied_head else "output.weight")

    def logits(self, tokens: list[int]) -> Array:
        """Return logits float64 [T, V] of every position of one sequence."""
        hidden = self.hidden_states(tokens)[-1]
        return _softcap(self._output(self._norm("output_norm.weight", hidden)), self.spec.final_softcap)

    def hidden_states(self, tokens: list[int]) -> list[Array]:
        """Return the residual stream [T, H] entering each layer, and behind the last one: L + 1 arrays."""
        spec = self.spec
        hidden = self.weight("token_embd.weight")[tokens] * spec.embedding_scale
        states = [hidden]
        for layer in range(spec.num_layers):
            hidden = hidden + self._attention(layer, hidden)
            hidden = hidden + self._feed_forward(layer, hidden)
            states.append(hidden)
        return states

    def _output(self, x: Array) -> Array:
        return x @ self._head.T

    def _attention(self, layer: int, hidden: Array) -> Array:
        spec, prefix = self.spec, f"blk.{layer}."
        x = self._norm(f"{prefix}attn_norm.weight", hidden)
        q = self._project(f"{prefix}attn_q", x).reshape(len(x), spec.num_heads, spec.head_dim)
        k = self._project(f"{prefix}attn_k", x).reshape(len(x), spec.num_kv_heads, spec.head_dim)
        v = self._project(f"{prefix}attn_v", x).reshape(len(x), spec.num_kv_heads, spec.head_dim)
        if spec.has_qk_norm:
            q = self._norm(f"{prefix}attn_q_norm.weight", q)
            k = self._norm(f"{prefix}attn_k_norm.weight", k)
        rope = spec.ropes[spec.layer_ropes[layer]]
        q, k = rotate(q, rope), rotate(k, rope)
        group = spec.num_heads // spec.num_kv_heads
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        scores = np.einsum("ihd,jhd->hij", q, k) * spec.attention_scale
        scores = _softcap(scores, spec.attention_softcap)
        scores = np.where(_visible(len(x), spec.layer_windows[layer]), scores, -np.inf)
        mixed = np.einsum("hij,jhd->ihd", _softmax(scores), v).reshape(len(x), -1)
        out = self._project(f"{prefix}attn_output", mixed)
        return self._norm(f"{prefix}post_attention_norm.weight", out) if spec.has_post_norms else out

    def _feed_forward(self, layer: int, hidden: Array) -> Array:
        spec, prefix = self.spec, f"blk.{layer}."
        x = self._norm(f"{prefix}ffn_norm.weight", hidden)
        gate, up = self._project(f"{prefix}ffn_gate", x), self._project(f"{prefix}ffn_up", x)
        activate = _silu if spec.activation == "silu" else _gelu_tanh
        out = self._project(f"{prefix}ffn_down", activate(gate) * up)
        return self._norm(f"{prefix}post_ffw_norm.weight", out) if spec.has_post_norms else out

    def _project(self, name: str, x: Array) -> Array:
        out = x @ self.weight(f"{name}.weight").T
        return out + self.weight(f"{name}.bias") if f"{name}.bias" in self._source.tensors else out

    def _norm(self, name: str, x: Array) -> Array:
        scale = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.spec.norm_eps)
        normed: Array = x * scale * self.weight(name)
        return normed


def rotate(x: Array, rope: RopeSpec) -> Array:
    """Rotate [T, heads, dims] by position; dims past the rotated ones stay."""
    half = len(rope.inverse_frequencies)
    angles = np.arange(len(x))[:, None] * np.array(rope.inverse_frequencies)
    cos = np.cos(angles)[:, None, :] * rope.attention_factor
    sin = np.sin(angles)[:, None, :] * rope.attention_factor
    out = x.copy()
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        if rope.style == "interleaved"
        else (slice(0, half), slice(half, 2 * half))
    )
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out


def _visible(length: int, window: int) -> npt.NDArray[np.bool_]:
    query, key = np.arange(length)[:, None], np.arange(length)[None, :]
    causal: npt.NDArray[np.bool_] = key <= query
    return causal & (query - key < window) if window else causal


def _softcap(x: Array, cap: float) -> Array:
    return cap * np.tanh(x / cap) if cap else x


def _softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    normalised: Array = weights / weights.sum(axis=-1, keepdims=True)
    return normalised


def _silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
