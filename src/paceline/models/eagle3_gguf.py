"""EAGLE-3 heads in GGUF files of architecture ``eagle3``, as llama.cpp's converter writes them.

Facts about that converter (ggml-org/llama.cpp, conversion/llama.py and src/models/eagle3.cpp at commit
0274f0fc, pull requests 18039 and 25794): ``eagle3.extract_layers`` numbers the *inputs* of layers,
[2, L // 2, L - 3] by default, as ``Eagle3Spec`` does; ``d2t`` is int64 and holds absolute target ids; q and k
rows are permuted, so that neighbouring dims rotate together; there is exactly one layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from paceline.errors import ModelFileError
from paceline.models.eagle3_config import head_like
from paceline.models.eagle3_spec import Eagle3Files, Eagle3Spec
from paceline.models.eagle3_tensors import check_values, head_shapes
from paceline.models.eagle3_vocabulary import checked_ids, read_map
from paceline.models.families import Family
from paceline.models.ggml_types import GGML_TYPES
from paceline.models.gguf_file import GgufHeader, GgufTensor, read_gguf_header
from paceline.models.gguf_source import GgufSource
from paceline.models.gguf_spec import MAX_WIDTH, ROPE_TENSORS, SpecBuilder
from paceline.models.metadata import Metadata
from paceline.models.safetensors_file import I32, I64, StoredTensor
from paceline.models.tensor_layout import layout_error, layout_faults

_FAMILY = Family("silu", gguf_rope_style="interleaved")
_MAP_TYPES = {I64.number: I64, I32.number: I32}
HEAD_TYPES = {**GGML_TYPES, **_MAP_TYPES}
"""Storage types in files of heads, by number."""
_TOKENS = "tokenizer.ggml.tokens"
_MOST_NAMED = 200


def open_gguf_head(path: Path) -> Eagle3Files:
    """Return the head in ``path``. Raises ``ModelFileError`` when it is none or not whole."""
    header = read_gguf_header(path, HEAD_TYPES)
    architecture = Metadata(header.metadata, path).text("general.architecture")
    if architecture != "eagle3":
        raise ModelFileError(
            f"{path} is a model of architecture {architecture!r}, no EAGLE-3 head; as a model of its own it "
            "can be used with drafter='draft_model:…'"
        )
    metadata = Metadata(header.metadata, path, architecture)
    vocabulary = header.tensors.get("d2t")
    weights = {name: tensor for name, tensor in header.tensors.items() if name != "d2t"}
    _refuse_whole_numbers(path, weights)
    source = GgufSource(replace(header, tensors=weights), {})
    try:
        spec = _spec(metadata, source, vocabulary)
        shapes = {name: t.shape for name, t in weights.items() if name not in ROPE_TENSORS}
        if faults := layout_faults(head_shapes(spec), shapes):
            raise layout_error(f"{path}: its tensors do not make an EAGLE-3 head", faults, _MOST_NAMED)
        ids = _ids(header, vocabulary, spec)
        check_values(source)
    except BaseException:
        source.close()
        raise
    tokens = partial(metadata.strings, _TOKENS) if metadata.has(_TOKENS) else None
    return Eagle3Files(spec, source, ids, tokens)


def _refuse_whole_numbers(path: Path, weights: Mapping[str, GgufTensor]) -> None:
    for name, tensor in weights.items():
        if tensor.ggml_type not in GGML_TYPES:
            raise ModelFileError(f"{path} stores the weight {name!r} as whole numbers: convert it again")


def _spec(metadata: Metadata, source: GgufSource, vocabulary: GgufTensor | None) -> Eagle3Spec:
    base = SpecBuilder("eagle3", _FAMILY, metadata, source).build(None)
    tensors = source.tensors
    states = _state_layers(metadata)
    return replace(
        head_like(base),
        target_hidden_size=metadata.integer(".target_hidden_size", base.hidden_size, high=MAX_WIDTH),
        draft_vocab_size=base.vocab_size if vocabulary is None else vocabulary.shape[-1],
        num_states=len(states),
        state_layers=states,
        norm_before_residual=metadata.flag(".norm_before_residual", False),
        has_embedding="token_embd.weight" in tensors,
        has_head="output.weight" in tensors,
        has_qkv_bias=base.has_qkv_bias,
        has_qk_norm="blk.0.attn_q_norm.weight" in tensors,
    )


def _state_layers(metadata: Metadata) -> tuple[int, ...]:
    value = metadata.values.get("eagle3.extract_layers")
    if not isinstance(value, np.ndarray) or not value.size or value.dtype.kind not in "iu":
        raise metadata.wrong(".extract_layers", value, "a list of layer numbers")
    layers = tuple(int(layer) for layer in value.tolist())
    if min(layers) < 0 or len(layers) > MAX_WIDTH:
        raise metadata.wrong(".extract_layers", layers, "a list of layer numbers")
    return layers


def _ids(header: GgufHeader, vocabulary: GgufTensor | None, spec: Eagle3Spec) -> np.ndarray:
    if vocabulary is None:
        return np.arange(spec.draft_vocab_size, dtype=np.int32)
    kind = _MAP_TYPES.get(vocabulary.ggml_type, GGML_TYPES.get(vocabulary.ggml_type))
    assert kind is not None
    stored = StoredTensor(header.path, vocabulary.shape, kind, vocabulary.offset)
    return checked_ids(read_map("d2t", stored), spec.draft_vocab_size, spec.vocab_size, header.path)
