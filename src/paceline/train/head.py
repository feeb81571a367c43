"""An EAGLE-3 head in PyTorch, with the tensor names of :class:`~paceline.models.eagle3_spec.Eagle3Files`.

Only what training needs: the projections of a layer are separate steps, because training-time test
(``ttt``) puts its own attention between them. Parameters are float32; ``cast`` gives the copies one batch
computes with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from paceline.errors import ConfigError
from paceline.models.eagle3_spec import Eagle3Spec
from paceline.train.fusing import fused

_NORMS = ("attn_norm", "ffn_norm")
_MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
INIT_STD = 0.02


class Eagle3Head(nn.Module):
    """The trained tensors of a head.

    ``tensors``: parameters by their file name, e.g. ``fc.weight``, ``blk.0.attn_q.weight``. In a fresh head
    attention and feed-forward add nothing yet: its output is what fc makes of the states.
    """

    def __init__(self, spec: Eagle3Spec, seed: int = 0) -> None:
        super().__init__()
        _check_trainable(spec)
        self.spec = spec
        generator = torch.Generator().manual_seed(seed)
        shapes = tensor_shapes(spec)
        # ParameterDict keys must not hold dots.
        self.parts = nn.ParameterDict(
            {_key(name): nn.Parameter(_initial(name, shape, generator)) for name, shape in shapes.items()}
        )

    @property
    def tensors(self) -> dict[str, nn.Parameter]:
        return {_name(key): value for key, value in self.parts.items()}

    def add_tensor(self, name: str, value: nn.Parameter) -> None:
        """Add a parameter that plain heads do not have."""
        self.parts[_key(name)] = value

    def load_tensors(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Copy values (float32) into the parameters of the same names."""
        with torch.no_grad():
            for name, values in tensors.items():
                self.parts[_key(name)].copy_(torch.from_numpy(np.ascontiguousarray(values, np.float32)))

    def cast(self, dtype: torch.dtype) -> HeadWeights:
        """Return the weights in ``dtype`` (norms stay float32), connected to the parameters' gradients."""
        values = {
            name: value if value.dim() == 1 else value.to(dtype) for name, value in self.tensors.items()
        }
        return HeadWeights(self.spec, values)


@dataclass(frozen=True, slots=True)
class HeadWeights:
    """The computations of a head on packed rows; all in the dtype of the matrices unless said otherwise."""

    spec: Eagle3Spec
    tensors: Mapping[str, Tensor]

    def norm(self, x: Tensor, name: str) -> Tensor:
        """RMSNorm with float32 variance."""
        return fused(rms_norm)(x, self.tensors[f"{name}.weight"], self.spec.norm_eps)

    def linear(self, x: Tensor, name: str) -> Tensor:
        return functional.linear(x, self.tensors[f"{name}.weight"])

    def project(self, states: Tensor) -> Tensor:
        """Return g [T, H] of captured states [T, n * Ht] (eagle3.md, step 2)."""
        return self.linear(states, "fc")

    def first_inputs(self, embedded: Tensor, state: Tensor) -> Tensor:
        """Return concat(input_layernorm(e), hidden_norm(g)) [T, 2 H] (step 4)."""
        return torch.cat((self.norm(embedded, "blk.0.attn_norm"), self.norm(state, "blk.0.attn_norm_2")), -1)

    def keys_values(self, x: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Return keys and values [T, kv heads, head dim], keys not rotated yet."""
        shape = (len(x), self.spec.num_kv_heads, self.spec.head_dim)
        return (
            self.linear(x, f"blk.{layer}.attn_k").view(shape),
            self.linear(x, f"blk.{layer}.attn_v").view(shape),
        )

    def queries(self, x: Tensor, layer: int) -> Tensor:
        """Return queries [T, heads, head dim], not rotated yet."""
        return self.linear(x, f"blk.{layer}.attn_q").view(len(x), self.spec.num_heads, self.spec.head_dim)

    def finish_layer(self, residual: Tensor, attended: Tensor, layer: int) -> Tensor:
        """Return residual + o_proj(attended), then + mlp of its norm."""
        name = f"blk.{layer}"
        y = residual + self.linear(attended, f"{name}.attn_output")
        x = self.norm(y, f"{name}.ffn_norm")
        gated = fused(gate)(self.linear(x, f"{name}.ffn_gate"), self.linear(x, f"{name}.ffn_up"))
        return y + self.linear(gated, f"{name}.ffn_down")


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return x / rms(x) * weight in x's dtype, computed in float32."""
    values = x.float()
    return (values * torch.rsqrt(values.square().mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


def gate(gated: Tensor, up: Tensor) -> Tensor:
    """Return silu(gated) * up."""
    values = gated.float()
    return (values * torch.sigmoid(values) * up.float()).to(up.dtype)


def tensor_shapes(spec: Eagle3Spec) -> dict[str, tuple[int, ...]]:
    """Return the shape of each trained tensor by name."""
    h, q, kv = spec.hidden_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (h, spec.num_states * spec.target_hidden_size)}
    for layer in range(spec.num_layers):
        width = 2 * h if layer == 0 else h
        sizes = (
            (q, width),
            (kv, width),
            (kv, width),
            (h, q),
            (spec.ffn_size, h),
            (spec.ffn_size, h),
            (h, spec.ffn_size),
        )
        shapes |= {f"blk.{layer}.{name}.weight": (h,) for name in _NORMS}
        shapes |= {f"blk.{layer}.{name}.weight": size for name, size in zip(_MATRICES, sizes, strict=True)}
    shapes["blk.0.attn_norm_2.weight"] = (h,)
    shapes["output_norm.weight"] = (h,)
    shapes["output.weight"] = (spec.draft_vocab_size, h)
    return shapes


def _initial(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if len(shape) == 1:
        return torch.ones(shape)
    if name.endswith(("attn_output.weight", "ffn_down.weight")):
        return torch.zeros(shape)
    std = INIT_STD if name != "fc.weight" else shape[1] ** -0.5
    return torch.randn(shape, generator=generator) * std


def _check_trainable(spec: Eagle3Spec) -> None:
    """The trainer makes the plain form; the variants of other trainers are only read."""
    odd = [
        name
        for name in (
            "norm_before_residual",
            "norm_output",
            "has_input_norm",
            "has_state_norms",
            "has_embedding",
            "has_qkv_bias",
            "has_qk_norm",
        )
        if getattr(spec, name)
    ]
    if odd or not spec.has_head:
        raise ConfigError(
            f"the trainer makes plain heads; these fields ask for another form: {odd or ['has_head']}"
        )
    if any(spec.layer_windows):
        raise ConfigError(f"layer_windows={spec.layer_windows}: the trainer makes heads with full attention")


def _key(name: str) -> str:
    return name.replace(".", "/")


def _name(key: str) -> str:
    return key.replace("/", ".")
