"""Tiny models of every supported architecture: the same weights as a GGUF file and as a Hugging Face folder.

>>> path = write_tiny_gguf(tmp_path / "tiny.gguf", "gemma3", "q4_k", seed=1)
>>> folder = write_tiny_hf(tmp_path / "tiny", "gemma3", "q4_k", seed=1)   # the dequantised weights in float32

The blocks are random but valid, so any storage type can be had; what they dequantise to is the model. Weights
are scaled so that logits spread by a few units and greedy choices are clear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from paceline.models.ggml_types import F32, GgmlType, ggml_type_named
from paceline.models.random_blocks import random_rows
from support.tiny_tokenizer import BOS_ID, CHAT_TEMPLATE, EOS_ID, MERGES, TOKEN_TYPES, TOKENS, VOCAB_SIZE

TINY_ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3")
TINY_VARIANTS = (*TINY_ARCHITECTURES, "mistral", "llama3", "qwen2-yarn", "gemma3-linear")
"""Besides the plain ones: llama with a sliding window, with Llama 3 rope scaling, YaRN, linear scaling."""


@dataclass(frozen=True, slots=True)
class TinyShape:
    """Dimensions of a tiny model; the wide form fills the 256-value blocks of the K types."""

    architecture: str
    num_layers: int = 2
    hidden_size: int = 64
    ffn_size: int = 96
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    rotated_dims: int = 16
    window: int = 0
    max_context: int = 1024
    original_context: int = 1024
    rope_base: float = 10000.0
    norm_eps: float = 1e-5
    tied: bool = True
    scaling: str = ""

    def wide(self) -> TinyShape:
        return replace(self, hidden_size=256, ffn_size=512, num_heads=8, num_kv_heads=2, head_dim=32,
                       rotated_dims=self.rotated_dims * 32 // self.head_dim)  # fmt: skip


_SHAPES = {
    "llama": TinyShape("llama", tied=False),
    "mistral": TinyShape("llama", window=24, num_kv_heads=1),
    "llama3": TinyShape("llama", scaling="llama3", original_context=128, rope_base=500000.0),
    "qwen2": TinyShape("qwen2", norm_eps=1e-6, rope_base=1000000.0),
    "qwen2-yarn": TinyShape("qwen2", scaling="yarn", original_context=256),
    "qwen3": TinyShape("qwen3", head_dim=32, rotated_dims=32, norm_eps=1e-6),
    "gemma2": TinyShape("gemma2", num_layers=4, head_dim=32, rotated_dims=32, window=16, norm_eps=1e-6),
    "gemma3": TinyShape("gemma3", num_layers=7, num_kv_heads=1, head_dim=32, rotated_dims=32, window=16,
                        norm_eps=1e-6, rope_base=1000000.0),
    "gemma3-linear": TinyShape("gemma3", num_layers=7, head_dim=32, rotated_dims=32, window=16,
                               norm_eps=1e-6, scaling="linear", rope_base=1000000.0),
    "phi3": TinyShape("phi3", head_dim=32, num_heads=2, rotated_dims=24, window=40, tied=False,
                      scaling="longrope", original_context=256),
}  # fmt: skip

LINEAR_FACTOR = 8.0
YARN_FACTOR = 4.0
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def tiny_shape(arch: str, ggml_type: str = "f32") -> TinyShape:
    """Return the dimensions ``arch`` has when stored as ``ggml_type``."""
    shape = _SHAPES[arch]
    return shape.wide() if ggml_type_named(ggml_type).block_size == 256 else shape


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """``data`` uint8 [rows, row bytes] of a (rows, columns) tensor; a vector is one row."""

    data: npt.NDArray[np.uint8]
    shape: tuple[int, ...]
    kind: GgmlType

    def floats(self) -> npt.NDArray[np.float32]:
        """Return the dequantised values, by the gguf package's own reference."""
        values = gguf.dequantize(self.data, gguf.GGMLQuantizationType(self.kind.number))
        return np.ascontiguousarray(values, np.float32).reshape(self.shape)


def tiny_tensors(arch: str, ggml_type: str = "f32", seed: int = 0) -> dict[str, StoredTensor]:
    """Return all tensors of a tiny model under their GGUF names, q k v and gate up apart."""
    shape, kind = tiny_shape(arch, ggml_type), ggml_type_named(ggml_type)
    rng = np.random.default_rng([seed, TINY_VARIANTS.index(arch)])
    names = {"token_embd.weight": (VOCAB_SIZE, shape.hidden_size), "output_norm.weight": (shape.hidden_size,)}
    if not shape.tied:
        names["output.weight"] = (VOCAB_SIZE, shape.hidden_size)
    for layer in range(shape.num_layers):
        names |= {f"blk.{layer}.{name}": dims for name, dims in _layer_shapes(shape).items()}
    return {name: _random_tensor(name, dims, kind, rng) for name, dims in names.items()}


def _layer_shapes(shape: TinyShape) -> dict[str, tuple[int, ...]]:
    hidden, ffn = shape.hidden_size, shape.ffn_size
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (hidden,),
        "attn_q.weight": (queries, hidden),
        "attn_k.weight": (keys, hidden),
        "attn_v.weight": (keys, hidden),
        "attn_output.weight": (hidden, queries),
        "ffn_norm.weight": (hidden,),
        "ffn_gate.weight": (ffn, hidden),
        "ffn_up.weight": (ffn, hidden),
        "ffn_down.weight": (hidden, ffn),
    }
    if shape.architecture == "qwen2":
        shapes |= {"attn_q.bias": (queries,), "attn_k.bias": (keys,), "attn_v.bias": (keys,)}
    if shape.architecture in ("qwen3", "gemma3"):
        shapes |= {"attn_q_norm.weight": (shape.head_dim,), "attn_k_norm.weight": (shape.head_dim,)}
    if shape.architecture.startswith("gemma"):
        shapes |= {"post_attention_norm.weight": (hidden,), "post_ffw_norm.weight": (hidden,)}
    return shapes


def _random_tensor(
    name: str, shape: tuple[int, ...], kind: GgmlType, rng: np.random.Generator
) -> StoredTensor:
    if len(shape) == 1:
        # Multiples of 1/64 near one, so that Gemma's stored weight - 1 is exact in float32.
        middle = 0.0 if name.endswith(".bias") else 1.0
        values = (middle + rng.integers(-24, 25, shape) / 64).astype(np.float32)
        return StoredTensor(values.view(np.uint8).reshape(1, -1), shape, F32)
    rows, columns = shape
    deviation = 0.5 if name in ("token_embd.weight", "output.weight") else 1.5 * columns**-0.5
    return StoredTensor(random_rows(kind, rows, columns, deviation, rng), shape, kind)


def longrope_factors(shape: TinyShape) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return longrope's short and long factors [rotated dims / 2]."""
    steps = np.arange(shape.rotated_dims // 2, dtype=np.float32)
    return 1 + steps / 32, 1 + steps / 4


def llama3_factors(shape: TinyShape) -> npt.NDArray[np.float32]:
    """Return what llama.cpp's converter stores as ``rope_freqs.weight``: plain ÷ scaled frequencies."""
    plain = shape.rope_base ** -(np.arange(0, shape.rotated_dims, 2) / shape.rotated_dims)
    wavelength = 2 * np.pi / plain
    low = shape.original_context / LLAMA3["low_freq_factor"]
    high = shape.original_context / LLAMA3["high_freq_factor"]
    smooth = (shape.original_context / wavelength - LLAMA3["low_freq_factor"]) / (
        LLAMA3["high_freq_factor"] - LLAMA3["low_freq_factor"]
    )
    between = 1 / ((1 - smooth) / LLAMA3["factor"] + smooth)
    factors = np.where(wavelength < high, 1.0, np.where(wavelength > low, LLAMA3["factor"], between))
    return factors.astype(np.float32)


def write_tiny_gguf(
    path: Path,
    arch: str = "llama",
    ggml_type: str = "f32",
    seed: int = 0,
    *,
    chat_template: str = CHAT_TEMPLATE,
    user_token: str | None = None,
) -> Path:
    """Write a tiny GGUF file (tokenizer and chat template included) and return ``path``.

    ``user_token``: text that is a token of its own, the last one, in place of the last merge.
    """
    shape = tiny_shape(arch, ggml_type)
    writer = gguf.GGUFWriter(path, shape.architecture)
    for key, value in _metadata(arch, shape).items():
        _add(writer, key, value)
    _add_tokenizer(writer, chat_template, user_token)
    for name, tensor in _stored_as_gguf(shape, tiny_tensors(arch, ggml_type, seed)).items():
        quantization = gguf.GGMLQuantizationType(tensor.kind.number)
        data = tensor.floats() if tensor.kind is F32 else tensor.data
        writer.add_tensor(name, data, raw_dtype=quantization)
    if shape.scaling == "longrope":
        short, long = longrope_factors(shape)
        writer.add_tensor("rope_factors_short.weight", short)
        writer.add_tensor("rope_factors_long.weight", long)
    if shape.scaling == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_tiny_hf(directory: Path, arch: str = "llama", ggml_type: str = "f32", seed: int = 0) -> Path:
    """Write a Hugging Face folder with the same (dequantised, float32) weights and return it."""
    from support.tiny_hf import write_folder

    return write_folder(directory, arch, tiny_shape(arch, ggml_type), tiny_tensors(arch, ggml_type, seed))


def _metadata(arch: str, shape: TinyShape) -> dict[str, Any]:
    name = shape.architecture
    values: dict[str, Any] = {
        "general.name": f"tiny {arch}",
        f"{name}.block_count": shape.num_layers,
        f"{name}.context_length": shape.max_context,
        f"{name}.embedding_length": shape.hidden_size,
        f"{name}.feed_forward_length": shape.ffn_size,
        f"{name}.attention.head_count": shape.num_heads,
        f"{name}.attention.head_count_kv": shape.num_kv_heads,
        f"{name}.attention.key_length": shape.head_dim,
        f"{name}.attention.value_length": shape.head_dim,
        f"{name}.attention.layer_norm_rms_epsilon": shape.norm_eps,
        f"{name}.rope.dimension_count": shape.rotated_dims,
        f"{name}.rope.freq_base": shape.rope_base,
        f"{name}.vocab_size": VOCAB_SIZE,
    }
    if shape.window:
        values[f"{name}.attention.sliding_window"] = shape.window
    if name == "gemma2":
        values |= {f"{name}.attn_logit_softcapping": 50.0, f"{name}.final_logit_softcapping": 30.0}
    return values | {f"{name}.rope.{key}": value for key, value in _rope_metadata(shape).items()}


def _rope_metadata(shape: TinyShape) -> dict[str, Any]:
    if shape.scaling == "linear":
        return {"scaling.type": "linear", "scaling.factor": LINEAR_FACTOR}
    if shape.scaling == "yarn":
        return {
            "scaling.type": "yarn",
            "scaling.factor": YARN_FACTOR,
            "scaling.original_context_length": shape.original_context,
        }
    if shape.scaling == "longrope":
        stretch = shape.max_context / shape.original_context
        return {
            "scaling.original_context_length": shape.original_context,
            "scaling.attn_factor": float(np.sqrt(1 + np.log(stretch) / np.log(shape.original_context))),
        }
    return {}


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_uint32(key, value)


def _add_tokenizer(writer: gguf.GGUFWriter, chat_template: str, user_token: str | None) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    if user_token is None:
        writer.add_token_list(TOKENS)
        writer.add_token_types(TOKEN_TYPES)
        writer.add_token_merges(MERGES)
    else:
        writer.add_token_list([*TOKENS[:-1], user_token])
        writer.add_token_types([*TOKEN_TYPES[:-1], gguf.TokenType.USER_DEFINED])
        writer.add_token_merges(MERGES[:-1])
    writer.add_bos_token_id(BOS_ID)
    writer.add_eos_token_id(EOS_ID)
    writer.add_add_bos_token(False)
    writer.add_chat_template(chat_template)


def _stored_as_gguf(shape: TinyShape, tensors: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return the tensors as a GGUF file holds them: Phi-3's q, k, v fused, and gate, up fused."""
    if shape.architecture != "phi3":
        return tensors
    fused = dict(tensors)
    for layer in range(shape.num_layers):
        for target, parts in {
            "attn_qkv": ("attn_q", "attn_k", "attn_v"),
            "ffn_up": ("ffn_gate", "ffn_up"),
        }.items():
            pieces = [fused.pop(f"blk.{layer}.{part}.weight") for part in parts]
            data = np.concatenate([piece.data for piece in pieces])
            fused[f"blk.{layer}.{target}.weight"] = StoredTensor(
                data, (len(data), pieces[0].shape[1]), pieces[0].kind
            )
    return fused
