"""Write a tiny EAGLE-3 head as llama.cpp's converter does: architecture ``eagle3``, q and k permuted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from support.eagle3_heads import Floats, TinyHead


def interleaved(values: Floats, head_dim: int) -> Floats:
    """Return q or k rows reordered so that neighbouring dims rotate together."""
    heads = values.reshape(-1, 2, head_dim // 2, values.shape[1])
    return np.ascontiguousarray(heads.swapaxes(1, 2).reshape(values.shape))


def write_gguf_head(
    path: Path, head: TinyHead, *, ids: Any = None, quantised: gguf.GGMLQuantizationType | None = None
) -> Path:
    """Write the file; ``ids`` replaces d2t; ``quantised``: storage of the matrices instead of float32."""
    spec = head.spec
    writer = gguf.GGUFWriter(path, "eagle3")
    writer.add_name(spec.name)
    writer.add_block_count(spec.num_layers)
    writer.add_context_length(spec.max_context)
    writer.add_embedding_length(spec.hidden_size)
    writer.add_feed_forward_length(spec.ffn_size)
    writer.add_head_count(spec.num_heads)
    writer.add_head_count_kv(spec.num_kv_heads)
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_layer_norm_rms_eps(spec.norm_eps)
    writer.add_rope_dimension_count(spec.head_dim)
    frequencies = spec.rope.inverse_frequencies
    writer.add_rope_freq_base(float(round(frequencies[1] ** -len(frequencies))))
    writer.add_vocab_size(spec.vocab_size)
    writer.add_array("eagle3.extract_layers", list(spec.layers_of(8)))
    writer.add_uint32("eagle3.target_hidden_size", spec.target_hidden_size)
    writer.add_bool("eagle3.norm_before_residual", spec.norm_before_residual)
    for name, values in head.weights.items():
        stored = values
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            stored = interleaved(values, spec.head_dim)
        if quantised is not None and values.ndim == 2:
            writer.add_tensor(name, gguf.quantize(stored, quantised), raw_dtype=quantised)
        else:
            writer.add_tensor(name, stored)
    if len(head.draft_to_target) != spec.vocab_size or ids is not None:
        absolute = head.draft_to_target if ids is None else ids
        writer.add_tensor("d2t", np.asarray(absolute, np.int64), raw_dtype=gguf.GGMLQuantizationType.I64)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
