"""An EAGLE-3 head in PyTorch, with the tensor names of :class:`~paceline.models.eagle3_spec.Eagle3Files`.

Only what training needs: training-time test (``ttt``) puts its own attention between the parts of a layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.errors import ConfigError
from paceline.models.eagle3_spec import Eagle3Spec
from paceline.train.layers import LayerWeights, NamedTensors, layer_shapes

INIT_STD = 0.02


class Eagle3Head(NamedTensors):
    """The trained tensors of a head.

    In a fresh head attention and feed-forward add nothing yet: its output is what fc makes of the states.
    """

    spec: Eagle3Spec

    def __init__(self, spec: Eagle3Spec, seed: int = 0) -> None:
        _check_trainable(spec)
        generator = torch.Generator().manual_seed(seed)
        shapes = tensor_shapes(spec)
        super().__init__(spec, {name: _initial(name, shape, generator) for name, shape in shapes.items()})

    def cast(self, dtype: torch.dtype) -> HeadWeights:
        """Return the weights in ``dtype`` (norms stay float32), connected to the parameters' gradients."""
        return HeadWeights(self.spec, self.cast_tensors(dtype))


@dataclass(frozen=True, slots=True)
class HeadWeights(LayerWeights):
    """The computations of a head on packed rows."""

    spec: Eagle3Spec

    def project(self, states: Tensor) -> Tensor:
        """Return g [T, H] of captured states [T, n * Ht] (eagle3.md, step 2)."""
        return self.linear(states, "fc")

    def first_inputs(self, embedded: Tensor, state: Tensor) -> Tensor:
        """Return concat(input_layernorm(e), hidden_norm(g)) [T, 2 H] (step 4)."""
        return torch.cat((self.norm(embedded, "blk.0.attn_norm"), self.norm(state, "blk.0.attn_norm_2")), -1)


def tensor_shapes(spec: Eagle3Spec) -> dict[str, tuple[int, ...]]:
    """Return the shape of each trained tensor by name."""
    h = spec.hidden_size
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (h, spec.num_states * spec.target_hidden_size)}
    for layer in range(spec.num_layers):
        shapes |= layer_shapes(spec, layer, 2 * h if layer == 0 else h)
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
