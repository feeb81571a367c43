"""What training needs of the target besides captured states: its embedding, its head, its shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paceline.models.eagle3 import open_eagle3
from paceline.models.eagle3_spec import Eagle3Spec
from paceline.models.spec import ModelSpec, TensorSource
from paceline.records import FloatArray, IntArray
from paceline.train.captured import CapturedData, from_bfloat16
from paceline.train.head import Eagle3Head
from paceline.train.target import TargetHead

_PIECE_ROWS = 8192
_SAMPLED_SEQUENCES = 64
_LEAST_SIZE = 1e-6


@dataclass(frozen=True, slots=True)
class Teacher:
    """``embedding`` [V, Ht] and the weights of ``head`` are in the dtype to compute in. ``head_rows`` float32
    [Vd, Ht]: the target's output rows of the draft vocabulary."""

    embedding: Tensor
    head: TargetHead
    head_rows: FloatArray


def load_teacher(
    spec: ModelSpec, source: TensorSource, draft_to_target: IntArray, dtype: torch.dtype
) -> Teacher:
    """Return the target's side of training. ``source`` is open; its tensors are dequantised."""
    embedding = load_matrix(source, "token_embd.weight", dtype)
    head_rows = _rows_of(source, "token_embd.weight" if spec.tied_head else "output.weight", draft_to_target)
    ((_, norm),) = _pieces(source, "output_norm.weight")
    weight = torch.from_numpy(head_rows).to(dtype)
    head = TargetHead(torch.from_numpy(norm.reshape(-1)), weight, spec.norm_eps, spec.final_softcap)
    return Teacher(embedding, head, head_rows)


def load_matrix(source: TensorSource, name: str, dtype: torch.dtype) -> Tensor:
    """Return a matrix of the target in ``dtype``."""
    matrix = torch.empty(source.tensors[name].shape, dtype=dtype)
    for start, piece in _pieces(source, name):
        matrix[start : start + len(piece)] = torch.from_numpy(piece)
    return matrix


def _pieces(source: TensorSource, name: str) -> Iterator[tuple[int, FloatArray]]:
    """Yield the first row's number and float32 values [rows, columns], by gguf's own dequantiser."""
    from gguf import GGMLQuantizationType, dequantize

    info = source.tensors[name]
    kind = GGMLQuantizationType(info.ggml_type)
    num_rows = info.shape[0] if len(info.shape) == 2 else 1
    for start in range(0, num_rows, _PIECE_ROWS):
        count = min(_PIECE_ROWS, num_rows - start)
        raw = source.read_rows(name, start, count).reshape(count, -1)
        yield start, np.array(dequantize(raw, kind), dtype=np.float32)


def _rows_of(source: TensorSource, name: str, ids: IntArray) -> FloatArray:
    """Return the rows ``ids`` (rising) of a matrix."""
    parts = []
    for start, piece in _pieces(source, name):
        inside = ids[(ids >= start) & (ids < start + len(piece))] - start
        parts.append(piece[inside])
    return np.concatenate(parts)


def fresh_head(
    spec: Eagle3Spec, teacher: Teacher, data: CapturedData, seed: int, kind: type[Eagle3Head] = Eagle3Head
) -> Eagle3Head:
    """Return an untrained head: the states, each scaled to its own size, mixed at random and read out by the
    target's final norm and output rows.

    The states' sizes differ tenfold (SmolLM2-135M: 2.9, 6.3, 22.7), so unscaled the last one would be all
    that fc sees. See :func:`quiet_norm` for the read-out.
    """
    head = kind(spec, seed)
    norm = quiet_norm(teacher.head.norm.numpy(), teacher.head_rows)
    head.load_tensors({"output.weight": teacher.head_rows, "output_norm.weight": norm})
    width = spec.target_hidden_size
    with torch.no_grad():
        for index, size in enumerate(state_sizes(data, spec.num_states)):
            head.tensors["fc.weight"][:, index * width : (index + 1) * width] /= size
    return head


def quiet_norm(norm: FloatArray, output: FloatArray) -> FloatArray:
    """Return the final norm scaled so that random states of size one have logits of size one.

    ``norm`` [H], ``output`` [V, H]. At full size the logits of random states are as large as a trained
    model's (5.5 for SmolLM2-135M, 54 for Gemma 3 270M): confident, and wrong.
    """
    size = float(np.sqrt(np.square(output * norm).sum(axis=1).mean()))
    return np.asarray(norm / max(size, 1.0), dtype=np.float32)


def state_sizes(data: CapturedData, num_states: int) -> list[float]:
    """Return the root mean square of each captured state over a sample of sequences.

    Position 0 is left out: many models park attention there with values a thousand times as large.
    """
    step = max(1, len(data) // _SAMPLED_SEQUENCES)
    rows = [data.sequence(index).states[1:] for index in range(0, len(data), step)]
    values = from_bfloat16(np.concatenate(rows))
    width = values.shape[1] // (num_states + 1)
    squares = np.square(values[:, : num_states * width]).reshape(len(values), num_states, width)
    return [max(float(size), _LEAST_SIZE) for size in np.sqrt(squares.mean(axis=(0, 2)))]


def read_head(folder: Path, target: ModelSpec) -> tuple[Eagle3Head, IntArray]:
    """Return an exported head of the trainer's plain form, and its draft vocabulary int32 [Vd].

    Raises what opening a head raises.
    """
    files = open_eagle3(folder, target)
    try:
        head = Eagle3Head(files.spec)
        head.load_tensors(
            {
                name: whole_tensor(files.source, name).reshape(info.shape)
                for name, info in files.source.tensors.items()
            }
        )
    finally:
        files.source.close()
    return head, files.draft_to_target


def whole_tensor(source: TensorSource, name: str) -> FloatArray:
    """Return a tensor's float32 values, [rows, columns] (a vector is one row)."""
    return np.concatenate([piece for _, piece in _pieces(source, name)])
