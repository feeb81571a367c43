"""Tiny EAGLE-3 heads on the native executor without any file: sources in memory, batches of pairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from paceline.executors.base import ForwardBatch
from paceline.executors.cpu import CacheType, CpuExecutor
from paceline.executors.eagle3 import Eagle3Executor
from paceline.models.eagle3_spec import Eagle3Files
from paceline.models.ggml_types import F32, GgmlType, ggml_type_named
from paceline.models.spec import TensorInfo
from paceline.records import FloatArray
from support.eagle3_heads import TinyHead
from support.eagle3_reference import Eagle3Reference
from support.native_batches import int32, load_executor
from support.tiny_models import tiny_tensors, write_tiny_gguf
from support.tiny_tokenizer import VOCAB_SIZE


class MemorySource:
    """A head's tensors, matrices stored as ``storage``; ``values`` are what they then are, float32."""

    def __init__(self, weights: Mapping[str, npt.NDArray[np.float32]], storage: str = "f32") -> None:
        self.tensors: dict[str, TensorInfo] = {}
        self.values: dict[str, npt.NDArray[np.float32]] = {}
        self._data: dict[str, npt.NDArray[np.uint8]] = {}
        for name, array in weights.items():
            self._add(name, array, F32 if array.ndim == 1 else ggml_type_named(storage))

    def _add(self, name: str, array: npt.NDArray[np.float32], kind: GgmlType) -> None:
        number = gguf.GGMLQuantizationType(kind.number)
        data = np.ascontiguousarray(gguf.quantize(array, number)).view(np.uint8)
        self.values[name] = np.asarray(gguf.dequantize(data, number), np.float32).reshape(array.shape)
        self._data[name] = data.reshape(-1, kind.row_bytes(array.shape[-1]))
        self.tensors[name] = TensorInfo(name, array.shape, kind.number, kind.row_bytes(array.shape[-1]))

    def read_rows(self, name: str, start: int, count: int) -> npt.NDArray[np.uint8]:
        return self._data[name][start : start + count].reshape(-1)

    def close(self) -> None:
        """There is nothing to close."""


def files_of(head: TinyHead, storage: str = "f32") -> Eagle3Files:
    return Eagle3Files(head.spec, MemorySource(head.weights, storage), head.draft_to_target)


def load_target(
    folder: Path, arch: str = "llama", ggml_type: str = "f32", num_threads: int = 2
) -> CpuExecutor:
    """Return a target whose states and cache nobody looks at: heads read its tables."""
    path = folder / f"{arch}-{ggml_type}.gguf"
    if not path.exists():
        write_tiny_gguf(path, arch, ggml_type)
    return load_executor(path, num_blocks=1, num_threads=num_threads)


def load_head(
    head: TinyHead,
    target: CpuExecutor,
    *,
    storage: str = "f32",
    cache_type: CacheType = "float32",
    num_blocks: int = 24,
) -> Eagle3Executor:
    return Eagle3Executor.load(files_of(head, storage), target, num_blocks=num_blocks, cache_type=cache_type)


def reference_of(head: TinyHead, arch: str = "llama", storage: str = "f32") -> Eagle3Reference:
    """Return the reference of a head on the tiny float32 target ``arch``."""
    tensors = tiny_tensors(arch)
    table = tensors["token_embd.weight"].floats()
    output = tensors["output.weight"].floats() if "output.weight" in tensors else table
    return Eagle3Reference(
        head.spec,
        MemorySource(head.weights, storage).values,
        head.draft_to_target,
        target_embedding=table,
        target_head=output,
    )


def random_pairs(head: TinyHead, count: int, seed: int = 0) -> tuple[list[int], FloatArray]:
    """Return ``count`` + 1 token ids and the target's states of all but the last, float32 [N, n * Ht]."""
    rng = np.random.default_rng(seed)
    width = head.spec.num_states * head.spec.target_hidden_size
    tokens = rng.integers(0, VOCAB_SIZE, count + 1).tolist()
    return tokens, (2 * rng.standard_normal((count, width))).astype(np.float32)


def pairs_batch(
    tokens: list[int], start: int, blocks: tuple[int, ...], num_logits: int | None = None
) -> ForwardBatch:
    """Return the pass over the pairs whose second tokens are ``tokens``; by default with all logits."""
    return ForwardBatch.chain(tokens, start, blocks, len(tokens) if num_logits is None else num_logits)


def node_batch(token: int, known: int, slots: list[int], blocks: tuple[int, ...]) -> ForwardBatch:
    """Return the pass over one drafted node behind ``known`` pairs; ``slots``: its ancestors' and its own."""
    return ForwardBatch(
        tokens=int32([token]),
        sequences=int32([0]),
        slots=int32(slots[-1:]),
        prefix_lengths=int32([known]),
        tail_offsets=int32([0, len(slots)]),
        tails=int32(slots),
        block_offsets=int32([0, len(blocks)]),
        blocks=int32(blocks),
        logit_rows=int32([0]),
    )
