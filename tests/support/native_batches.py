"""Building forward passes for executor tests: chains, prompt chunks and trees of one or more sequences."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from paceline.executors.base import ForwardBatch
from paceline.executors.cpu import CacheType, CpuExecutor
from paceline.models.gguf_file import read_gguf_header
from paceline.models.gguf_source import GgufSource
from paceline.models.gguf_spec import load_gguf_spec
from paceline.models.spec import ModelSpec
from paceline.records import FloatArray, IntArray
from paceline.tree import TokenTree


def int32(values: Sequence[int] | IntArray) -> IntArray:
    return np.ascontiguousarray(values, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of one sequence: a chunk of known tokens, then a tree that hangs on the last of them.

    ``start``: position of the first token of ``chunk``; ``blocks``: the sequence's block table.
    """

    chunk: tuple[int, ...]
    start: int
    blocks: tuple[int, ...]
    tree: TokenTree = field(default_factory=TokenTree)


def batch_of(*sequences: Rows) -> ForwardBatch:
    """Lay the rows of all sequences into one pass that asks for the logits of every row."""
    tokens: list[int] = []
    owners: list[int] = []
    slots: list[int] = []
    prefixes: list[int] = []
    tails: list[int] = []
    tail_offsets = [0]
    for owner, rows in enumerate(sequences):
        end = rows.start + len(rows.chunk)
        for position, token in enumerate(rows.chunk, rows.start):
            tokens.append(token)
            slots.append(position)
            prefixes.append(position + 1)
            tail_offsets.append(len(tails))
        for node, token in enumerate(rows.tree.tokens):
            tokens.append(token)
            slots.append(end + node)
            prefixes.append(end)
            tails.extend(end + ancestor for ancestor in rows.tree.path(node))
            tail_offsets.append(len(tails))
        owners.extend([owner] * (len(rows.chunk) + len(rows.tree)))
    block_offsets = np.cumsum([0, *(len(rows.blocks) for rows in sequences)])
    return ForwardBatch(
        tokens=int32(tokens),
        sequences=int32(owners),
        slots=int32(slots),
        prefix_lengths=int32(prefixes),
        tail_offsets=int32(tail_offsets),
        tails=int32(tails),
        block_offsets=int32(block_offsets),
        blocks=int32([block for rows in sequences for block in rows.blocks]),
        logit_rows=int32(range(len(tokens))),
    )


def open_gguf(path: Path) -> tuple[ModelSpec, GgufSource]:
    return load_gguf_spec(read_gguf_header(path))


def load_executor(
    path: Path,
    *,
    num_blocks: int = 24,
    num_threads: int = 2,
    float32: bool = False,
    cache_type: CacheType = "float16",
) -> CpuExecutor:
    spec, source = open_gguf(path)
    with closing(source):
        return CpuExecutor.load(
            spec,
            source,
            num_blocks=num_blocks,
            num_threads=num_threads,
            float32=float32,
            cache_type=cache_type,
        )


def run(executor: CpuExecutor, *sequences: Rows) -> FloatArray:
    """Return a copy of the logits of every row."""
    return executor.forward(batch_of(*sequences)).copy()
