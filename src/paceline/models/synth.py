"""Write a GGUF file of a published model's dimensions with random weights and a working tokenizer.

Speed depends on shapes and storage types, not on what the weights mean, so sizes that cannot be downloaded
are measured on such files. Matrices are random blocks (see ``random_blocks``), written one at a time: a model
of a billion weights takes seconds and the memory of its largest tensor. Storage follows llama.cpp's
quantiser: the embedding and the head are kept in Q6_K (Q8_0), and rows that do not fill the 256 values of a K
block fall back to the type of 32 next above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.errors import ConfigError, nearest_name
from paceline.models import ggml_types as types
from paceline.models import rope
from paceline.models.byte_alphabet import letters
from paceline.models.ggml_types import GGML_TYPES, GgmlType, ggml_type_named
from paceline.models.random_blocks import random_rows
from paceline.models.synth_shapes import SYNTH_SHAPES, SynthShape

if TYPE_CHECKING:
    from gguf import GGUFWriter

SYNTH_QUANTS = tuple(kind.name.lower() for kind in GGML_TYPES.values())
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_NARROW = {types.Q4_K: types.Q5_0, types.Q5_K: types.Q5_1, types.Q6_K: types.Q8_0}
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_synthetic_model(
    like: str, quant: str, out: Path, *, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Write a model shaped like ``like``, its matrices stored as ``quant``, to ``out``; return ``out``.

    ``progress`` gets tensors written and tensors in all. The same arguments give the same file. Raises
    ``ConfigError`` for an unknown name or a place that cannot be written; ``out`` is replaced whole or not.
    """
    shape = _known(SYNTH_SHAPES, "like", like)
    kind = ggml_type_named(_known({name: name for name in SYNTH_QUANTS}, "quant", quant.lower()))
    part = out.with_name(f"{out.name}.part")
    try:
        _write(shape, like, kind, part, seed, progress or (lambda done, total: None))
        part.replace(out)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror or error}; choose another --out") from error
    finally:
        part.unlink(missing_ok=True)
    return out


def _known(table: dict[str, Any], field: str, name: str) -> Any:
    if name not in table:
        raise ConfigError(f"{field}={name!r}{nearest_name(name, table)}; known are {', '.join(table)}")
    return table[name]


def _write(
    shape: SynthShape, name: str, kind: GgmlType, path: Path, seed: int, progress: Callable[[int, int], None]
) -> None:
    from gguf import GGMLQuantizationType, GGUFWriter

    writer = GGUFWriter(path, shape.architecture)
    try:
        _add_metadata(writer, shape, name, kind)
        _add_tokenizer(writer, shape.vocab_size)
        tensors = list(_tensors(shape, kind))
        for tensor_name, dims, stored in tensors:
            row_bytes = stored.row_bytes(dims[-1])
            byte_shape = (*dims[:-1], row_bytes)
            size = int(np.prod(byte_shape))
            raw_type = GGMLQuantizationType(stored.number)
            writer.add_tensor_info(tensor_name, byte_shape, np.dtype(np.uint8), size, raw_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        rng = np.random.default_rng(seed)
        for done, (tensor_name, dims, stored) in enumerate(tensors, 1):
            writer.write_tensor_data(_random_tensor(shape, tensor_name, dims, stored, rng))
            progress(done, len(tensors))
    finally:
        writer.close()


def _tensors(shape: SynthShape, kind: GgmlType) -> Iterator[tuple[str, tuple[int, ...], GgmlType]]:
    """Yield name, shape and storage type of every tensor, in the order of the file."""
    top = _top_type(kind, shape.hidden_size)
    yield "token_embd.weight", (shape.vocab_size, shape.hidden_size), top
    for layer in range(shape.num_layers):
        for name, dims in _layer_tensors(shape).items():
            yield f"blk.{layer}.{name}", dims, types.F32 if len(dims) == 1 else _fitting(kind, dims[-1])
    yield "output_norm.weight", (shape.hidden_size,), types.F32
    if not shape.tied:
        yield "output.weight", (shape.vocab_size, shape.hidden_size), top
    if shape.llama3_factor:
        yield "rope_freqs.weight", (shape.head_dim // 2,), types.F32


def _fitting(kind: GgmlType, columns: int) -> GgmlType:
    """Return ``kind``, or what llama.cpp's quantiser takes where rows do not fill its blocks."""
    return kind if columns % kind.block_size == 0 else _NARROW[kind]


def _top_type(kind: GgmlType, columns: int) -> GgmlType:
    """Return the storage type of the embedding and the head: more than four bits are spent on them."""
    if kind in (types.F32, types.F16, types.BF16, types.Q8_0):
        return kind
    return _fitting(types.Q6_K, columns)


def _layer_tensors(shape: SynthShape) -> dict[str, tuple[int, ...]]:
    hidden, ffn = shape.hidden_size, shape.ffn_size
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    is_phi3, is_gemma = shape.architecture == "phi3", shape.architecture.startswith("gemma")
    tensors: dict[str, tuple[int, ...]] = {"attn_norm.weight": (hidden,)}
    if is_phi3:
        tensors["attn_qkv.weight"] = (queries + 2 * keys, hidden)
    else:
        tensors |= {
            "attn_q.weight": (queries, hidden),
            "attn_k.weight": (keys, hidden),
            "attn_v.weight": (keys, hidden),
        }
    if shape.architecture == "qwen2":
        tensors |= {"attn_q.bias": (queries,), "attn_k.bias": (keys,), "attn_v.bias": (keys,)}
    if shape.architecture in ("qwen3", "gemma3"):
        tensors |= {"attn_q_norm.weight": (shape.head_dim,), "attn_k_norm.weight": (shape.head_dim,)}
    tensors["attn_output.weight"] = (hidden, queries)
    if is_gemma:
        tensors["post_attention_norm.weight"] = (hidden,)
    tensors["ffn_norm.weight"] = (hidden,)
    if not is_phi3:
        tensors["ffn_gate.weight"] = (ffn, hidden)
    tensors |= {"ffn_up.weight": (2 * ffn if is_phi3 else ffn, hidden), "ffn_down.weight": (hidden, ffn)}
    if is_gemma:
        tensors["post_ffw_norm.weight"] = (hidden,)
    return tensors


def _random_tensor(
    shape: SynthShape, name: str, dims: tuple[int, ...], kind: GgmlType, rng: np.random.Generator
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return stored bytes. Projections keep the size of activations; logits spread by about three."""
    if name == "rope_freqs.weight":
        values = _llama3_factors(shape)
    elif len(dims) == 1:
        values = rng.normal(0.0 if name.endswith(".bias") else 1.0, 0.05, dims).astype(np.float32)
    else:
        gain = 3.0 if name in ("token_embd.weight", "output.weight") else 1.0
        return _random_matrix(kind, dims[0], dims[1], gain * dims[1] ** -0.5, rng)
    return values.view(np.uint8)


def _random_matrix(
    kind: GgmlType, rows: int, columns: int, deviation: float, rng: np.random.Generator
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return stored bytes [rows, row bytes], made in pieces so that floats never take much memory."""
    data = np.empty((rows, kind.row_bytes(columns)), np.uint8)
    step = max(1, (4 << 20) // columns)
    for start in range(0, rows, step):
        piece = data[start : start + step]
        piece[:] = random_rows(kind, len(piece), columns, deviation, rng)
    return data


def _llama3_factors(shape: SynthShape) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return plain ÷ scaled frequencies, as Llama 3.1 and 3.2 files hold them."""
    plain = rope.plain_frequencies(shape.rope_base, shape.head_dim)
    scaling = rope.Llama3Scaling(shape.llama3_factor, 1.0, 4.0, 8192)
    return (plain / rope.llama3_frequencies(plain, scaling)).astype(np.float32)


def _add_metadata(writer: GGUFWriter, shape: SynthShape, name: str, kind: GgmlType) -> None:
    # llama.cpp takes a model named phi3 for one with Phi-3's vocabulary, and fails without its tokens.
    writer.add_name(f"synthetic {name.replace('phi3', 'phi 3')} {kind.name}")
    writer.add_block_count(shape.num_layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_feed_forward_length(shape.ffn_size)
    writer.add_head_count(shape.num_heads)
    writer.add_head_count_kv(shape.num_kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_vocab_size(shape.vocab_size)
    if shape.window:
        writer.add_sliding_window(shape.window)
    if shape.architecture == "gemma2":
        writer.add_attn_logit_softcapping(50.0)
        writer.add_final_logit_softcapping(30.0)


def _add_tokenizer(writer: GGUFWriter, vocab_size: int) -> None:
    tokens, merges = synthetic_vocabulary(vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(_SPECIAL) + [1] * (vocab_size - len(_SPECIAL)))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(_SPECIAL.index("<|endoftext|>"))
    writer.add_eos_token_id(_SPECIAL.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(_CHAT_TEMPLATE)


def synthetic_vocabulary(size: int) -> tuple[list[str], list[str]]:
    """Return ``size`` tokens and their merges: marks, bytes, pairs of letters, then pairs of pairs.

    Words come out in pieces of two to four letters, which is what small vocabularies do.
    """
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    starts = [first + second for first in "Ġ" + alphabet for second in alphabet]
    pairs = [f"{pair[0]} {pair[1]}" for pair in starts]
    quads = (f"{left} {right}" for left in starts for right in starts if right[0] != "Ġ")
    num_merges = size - len(_SPECIAL) - 256
    merges = pairs[:num_merges]
    while len(merges) < num_merges:
        merges.append(next(quads))
    return [*_SPECIAL, *letters(), *(merge.replace(" ", "") for merge in merges)], merges
