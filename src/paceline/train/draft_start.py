"""Where a draft model starts: the target's own first layers, norm and embedding."""

from __future__ import annotations

import numpy as np
import torch

from paceline.models.spec import ModelSpec, TensorSource
from paceline.records import FloatArray
from paceline.train.draft_model import DraftModelSpec, DraftModelTensors, draft_model_shapes
from paceline.train.teacher import whole_tensor

INIT_STD = 0.02
READ_OUT = 0.3
"""What the final norm is multiplied with at the start, so that a cut-short target is less sure of itself."""
_ADDED = ("attn_output.weight", "ffn_down.weight")
_ROTATED = ("attn_q.weight", "attn_k.weight")


def fresh_draft_model(
    spec: DraftModelSpec, target: ModelSpec, source: TensorSource, seed: int
) -> DraftModelTensors:
    """Return an untrained draft model. ``source``: the target's open tensors.

    Each tensor is the target's of the same layer where there is one of its shape (an added layer starts as
    one that adds nothing); parts of a target that Llama's form lacks, such as norms of queries and keys, are
    left out. The final norm is shrunk (``READ_OUT``).
    """
    rng = np.random.default_rng(seed)
    model = DraftModelTensors(spec)
    values = {
        name: _copied(name, shape, spec, target, source)
        if name in source.tensors and source.tensors[name].shape == shape
        else _random(name, shape, rng)
        for name, shape in draft_model_shapes(spec).items()
    }
    values["output_norm.weight"] = values["output_norm.weight"] * np.float32(READ_OUT)
    model.load_tensors(values)
    return model


def _copied(
    name: str, shape: tuple[int, ...], spec: DraftModelSpec, target: ModelSpec, source: TensorSource
) -> FloatArray:
    values = whole_tensor(source, name).reshape(shape)
    if name.endswith(_ADDED):
        # Llama's form does not scale what it embeds: the residual stream, and all that is added, is smaller.
        values = values / np.float32(target.embedding_scale)
    if name.endswith(_ROTATED) and target.ropes[0].style == "interleaved":
        values = rotating_halves(values, spec.head_dim)
    return np.ascontiguousarray(values, np.float32)


def _random(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    if name.endswith(_ADDED):
        return np.zeros(shape, np.float32)
    return rng.standard_normal(shape, np.float32) * np.float32(INIT_STD)


def rotating_halves(values: FloatArray, head_dim: int) -> FloatArray:
    """Return q or k rows of neighbouring pairs so that dim i pairs with i + head_dim / 2."""
    heads = values.reshape(-1, head_dim // 2, 2, values.shape[1])
    return np.ascontiguousarray(heads.swapaxes(1, 2).reshape(values.shape))


def rotating_neighbours(values: FloatArray, head_dim: int) -> FloatArray:
    """Return q or k rows whose halves pair so that neighbours do: what Llama's GGUF files hold."""
    heads = values.reshape(-1, 2, head_dim // 2, values.shape[1])
    return np.ascontiguousarray(heads.swapaxes(1, 2).reshape(values.shape))


def load_draft_model(spec: DraftModelSpec, source: TensorSource, *, halves: bool) -> DraftModelTensors:
    """Return an exported draft model. ``halves``: how the file's q and k rows rotate."""
    model = DraftModelTensors(spec)
    values = {
        name: whole_tensor(source, name).reshape(shape) for name, shape in draft_model_shapes(spec).items()
    }
    if not halves:
        values |= {
            name: rotating_halves(part, spec.head_dim)
            for name, part in values.items()
            if name.endswith(_ROTATED)
        }
    model.load_tensors(values)
    return model


def rows_as_stored(model: DraftModelTensors, *, halves: bool) -> dict[str, FloatArray]:
    """Return the trained tensors in float32 as a file holds them."""
    with torch.no_grad():
        values = {name: value.numpy().astype(np.float32) for name, value in model.tensors.items()}
    if not halves:
        for name in [name for name in values if name.endswith(_ROTATED)]:
            values[name] = rotating_neighbours(values[name], model.spec.head_dim)
    return values
