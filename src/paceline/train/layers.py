"""What heads and draft models in PyTorch share: named parameters, and the parts of a decoder layer.

The projections of a layer are separate steps, because training puts its own attention between them.
Parameters are float32; ``cast`` gives the copies one batch computes with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from paceline.models.spec import RopeSpec
from paceline.train.fusing import fused


class LayerShape(Protocol):
    """The dimensions of a trained decoder; ``target_hidden_size``: width of the captured states."""

    @property
    def num_layers(self) -> int: ...

    @property
    def hidden_size(self) -> int: ...

    @property
    def num_heads(self) -> int: ...

    @property
    def num_kv_heads(self) -> int: ...

    @property
    def head_dim(self) -> int: ...

    @property
    def ffn_size(self) -> int: ...

    @property
    def norm_eps(self) -> float: ...

    @property
    def rope(self) -> RopeSpec: ...

    @property
    def target_hidden_size(self) -> int: ...


class NamedTensors(nn.Module):
    """Parameters by their file name, e.g. ``blk.0.attn_q.weight``."""

    def __init__(self, spec: LayerShape, values: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.spec = spec
        # ParameterDict keys must not hold dots.
        self.parts = nn.ParameterDict({_key(name): nn.Parameter(value) for name, value in values.items()})

    @property
    def tensors(self) -> dict[str, nn.Parameter]:
        return {_name(key): value for key, value in self.parts.items()}

    def add_tensor(self, name: str, value: nn.Parameter) -> None:
        """Add one more parameter."""
        self.parts[_key(name)] = value

    def load_tensors(self, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        """Copy values into the parameters of the same names."""
        with torch.no_grad():
            for name, values in tensors.items():
                self.parts[_key(name)].copy_(torch.from_numpy(np.ascontiguousarray(values, np.float32)))

    def cast(self, dtype: torch.dtype) -> LayerWeights:
        """Return the weights in ``dtype`` (norms stay float32), connected to the parameters' gradients."""
        return LayerWeights(self.spec, self.cast_tensors(dtype))

    def cast_tensors(self, dtype: torch.dtype) -> dict[str, Tensor]:
        return {name: value if value.dim() == 1 else value.to(dtype) for name, value in self.tensors.items()}


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """The computations of a layer on packed rows; all in the dtype of the matrices unless said otherwise."""

    spec: LayerShape
    tensors: Mapping[str, Tensor]

    def norm(self, x: Tensor, name: str) -> Tensor:
        """RMSNorm with float32 variance."""
        return fused(rms_norm)(x, self.tensors[f"{name}.weight"], self.spec.norm_eps)

    def linear(self, x: Tensor, name: str) -> Tensor:
        return functional.linear(x, self.tensors[f"{name}.weight"])

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


def layer_shapes(spec: LayerShape, layer: int, input_width: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a layer whose projections read ``input_width`` values."""
    h, q, kv = spec.hidden_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (h,),
        "ffn_norm": (h,),
        "attn_q": (q, input_width),
        "attn_k": (kv, input_width),
        "attn_v": (kv, input_width),
        "attn_output": (h, q),
        "ffn_gate": (spec.ffn_size, h),
        "ffn_up": (spec.ffn_size, h),
        "ffn_down": (h, spec.ffn_size),
    }
    return {f"blk.{layer}.{name}.weight": shape for name, shape in shapes.items()}


def _key(name: str) -> str:
    return name.replace(".", "/")


def _name(key: str) -> str:
    return key.replace("/", ".")
