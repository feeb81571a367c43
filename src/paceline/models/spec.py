"""What a model is, as data: its dimensions and its tensors, whatever file they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

Activation = Literal["silu", "gelu_tanh"]
RopeStyle = Literal["interleaved", "half_split"]


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding.

    ``inverse_frequencies`` [rotated dims / 2] in radians per position, scaling (linear, llama3, longrope …)
    already applied; dims of a head past the rotated ones stay as they are. ``attention_factor`` multiplies
    cosine and sine (yarn, longrope).
    """

    inverse_frequencies: tuple[float, ...]
    style: RopeStyle
    attention_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One decoder-only transformer.

    ``layer_windows`` [num_layers]: sliding window in tokens (the token itself included), 0 for full
    attention. ``layer_ropes`` [num_layers]: index into ``ropes``. ``attention_scale`` multiplies q·k.
    ``attention_softcap`` and ``final_softcap``: x → cap · tanh(x / cap), 0 for none. ``embedding_scale``
    multiplies embedded tokens. Optional parts are present exactly when ``has_*`` says so; norm weights are
    stored ready to multiply (Gemma's +1 applied).
    """

    architecture: str
    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    max_context: int
    norm_eps: float
    activation: Activation
    ropes: tuple[RopeSpec, ...]
    layer_ropes: tuple[int, ...]
    layer_windows: tuple[int, ...]
    attention_scale: float
    attention_softcap: float = 0.0
    final_softcap: float = 0.0
    embedding_scale: float = 1.0
    tied_head: bool = False
    has_qkv_bias: bool = False
    has_qk_norm: bool = False
    has_post_norms: bool = False


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Shape and storage of one tensor.

    ``shape`` is (rows, columns) for a matrix in row-major order (a row is one output), (n,) for a vector.
    ``ggml_type`` is the number GGUF uses for the storage type (``gguf.GGMLQuantizationType``).
    ``row_bytes``: bytes of one row (of the whole vector).
    """

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    row_bytes: int


class TensorSource(Protocol):
    """The tensors of a model, under their GGUF names, read in pieces so that loading stays small.

    Names: ``token_embd.weight``, ``output_norm.weight``, ``output.weight`` (absent when tied), and per layer
    ``blk.N.`` + ``attn_norm ffn_norm attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down`` (each with
    ``.weight``), ``attn_q.bias attn_k.bias attn_v.bias``, ``attn_q_norm.weight attn_k_norm.weight``,
    ``post_attention_norm.weight post_ffw_norm.weight``. Fused tensors (Phi-3) are presented already split.
    """

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...

    def read_rows(self, name: str, start: int, count: int) -> npt.NDArray[np.uint8]:
        """Return the stored bytes of rows ``start … start + count - 1``, uint8 [count * row_bytes].

        For a vector, ``start`` is 0 and ``count`` 1. Raises ``ModelFileError`` when the file ends too soon.
        """
        ...

    def close(self) -> None: ...


GGML_VECTOR_DTYPES: Mapping[int, str] = {0: "<f4", 1: "<f2"}
"""Storage types a vector (norm weight, bias) may have, by GGUF number, and their numpy names."""
