"""The second opinion: transformers in float32 on the dequantised weights of a GGUF file.

>>> model = model_of_gguf(smollm2_path)
>>> logits_of(model, tokens).shape
(5000, 49152)

The weights go through ``gguf.dequantize`` and Hugging Face's names and conventions (support.tiny_hf), not
through the package's own loader: only the container is read with its header parser.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np

from paceline.models.ggml_types import GGML_TYPES
from paceline.models.gguf_file import GgufHeader, read_gguf_header
from support.tiny_hf import hf_config, hf_tensors
from support.tiny_models import StoredTensor, TinyShape

if TYPE_CHECKING:
    import torch


def model_of_folder(folder: Path) -> Any:
    """Load a Hugging Face folder in float32, ready to answer."""
    import torch
    from transformers import AutoModelForCausalLM

    logging.getLogger("transformers").setLevel(logging.ERROR)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def model_of_gguf(path: Path) -> Any:
    """Build the transformers model of a ``llama`` or ``gemma3`` GGUF file, dequantised to float32."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    header = read_gguf_header(path)
    shape = shape_of(header)
    settings = hf_config(shape.architecture, shape) | {
        "vocab_size": header.tensors["token_embd.weight"].shape[0]
    }
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    with no_init_weights():  # random weights would take longer than ours
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    weights = {name: torch.tensor(values) for name, values in hf_tensors(shape, _stored(header)).items()}
    missing, unexpected = model.load_state_dict(weights, strict=False, assign=True)
    assert not unexpected and set(missing) <= ({"lm_head.weight"} if shape.tied else set()), (
        missing,
        unexpected,
    )
    model.tie_weights()
    return model.eval()


def shape_of(header: GgufHeader) -> TinyShape:
    """Read the dimensions of a model without rope scaling from its metadata."""
    values = header.metadata
    name = str(values["general.architecture"])

    def of(key: str, default: Any = None) -> Any:
        return values.get(f"{name}.{key}", default)

    hidden, heads, context = of("embedding_length"), of("attention.head_count"), of("context_length")
    head_dim = of("attention.key_length", hidden // heads)
    return TinyShape(
        architecture=name,
        num_layers=of("block_count"),
        hidden_size=hidden,
        ffn_size=of("feed_forward_length"),
        num_heads=heads,
        num_kv_heads=of("attention.head_count_kv"),
        head_dim=head_dim,
        rotated_dims=of("rope.dimension_count", head_dim),
        window=of("attention.sliding_window", 0),
        max_context=context,
        original_context=context,
        rope_base=of("rope.freq_base"),
        norm_eps=of("attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in header.tensors,
    )


def _stored(header: GgufHeader) -> dict[str, StoredTensor]:
    file = np.memmap(header.path, np.uint8, "r")
    return {
        tensor.name: StoredTensor(
            file[tensor.offset : tensor.offset + tensor.size].reshape(-1, tensor.row_bytes),
            tensor.shape,
            GGML_TYPES[tensor.ggml_type],
        )
        for tensor in header.tensors.values()
    }


def logits_of(model: Any, tokens: list[int]) -> torch.Tensor:
    """Return the logits of every position of one sequence, float32 [T, V]."""
    import torch

    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
    return logits
