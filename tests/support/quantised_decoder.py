"""The readable reference of quantised products: int8 activations per 32 values, float64 sums."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.models.ggml_types import GGML_TYPES
from support.reference_decoder import Array, ReferenceDecoder

GROUP = 32


def rounded_to_int8(x: Array) -> Array:
    """Return ``x`` [..., K] as the kernels see it: per 32 values, multiples of (largest magnitude) / 127."""
    groups = x.astype(np.float32).reshape(*x.shape[:-1], -1, GROUP)
    largest = np.abs(groups).max(axis=-1, keepdims=True)
    scale: npt.NDArray[np.float32] = largest / np.float32(127)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    return (np.rint(groups * inverse).astype(np.float64) * scale).reshape(x.shape)


class QuantisedDecoder(ReferenceDecoder):
    """Rounds the input of every product with quantised weights."""

    def _project(self, name: str, x: Array) -> Array:
        kind = GGML_TYPES[self._source.tensors[f"{name}.weight"].ggml_type]
        return super()._project(name, rounded_to_int8(x) if kind.block_size > 1 else x)

    def _output(self, x: Array) -> Array:
        name = "token_embd.weight" if self.spec.tied_head else "output.weight"
        kind = GGML_TYPES[self._source.tensors[name].ggml_type]
        return super()._output(rounded_to_int8(x) if kind.block_size > 1 else x)
