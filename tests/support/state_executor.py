"""A fake executor with states: a row's states say which tokens stood before it, as attention would."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from paceline.executors.base import ForwardBatch
from paceline.models.rope import plain_frequencies
from paceline.models.spec import ModelSpec, RopeSpec
from paceline.records import FloatArray
from support.fake_executor import check_batch

EMPTY = -1


def tiny_spec(num_layers: int = 8, hidden_size: int = 6) -> ModelSpec:
    """Return a spec of the right kind; only its layers, width and vocabulary are looked at."""
    return ModelSpec(
        architecture="llama",
        name="tiny",
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=1,
        num_kv_heads=1,
        head_dim=hidden_size,
        ffn_size=8,
        vocab_size=64,
        max_context=4096,
        norm_eps=1e-5,
        activation="silu",
        ropes=(RopeSpec(tuple(plain_frequencies(10000.0, hidden_size).tolist()), "half_split"),),
        layer_ropes=(0,) * num_layers,
        layer_windows=(0,) * num_layers,
        attention_scale=1.0,
    )


def expected_states(tokens: Sequence[int], layers: Sequence[int], hidden_size: int) -> FloatArray:
    """Return what :class:`StateExecutor` gives for a sequence: [n, layers * hidden_size]."""
    rows = [_state(tuple(tokens[: end + 1]), layers, hidden_size) for end in range(len(tokens))]
    return np.stack(rows)


def _state(path: tuple[int, ...], layers: Sequence[int], hidden_size: int) -> FloatArray:
    mark = zlib.crc32(np.asarray(path, dtype=np.int32).tobytes()) % 100_003
    steps = np.arange(1, hidden_size + 1)
    return np.concatenate([np.sin(steps * (mark + layer * 0.37)) for layer in layers]).astype(np.float32)


@dataclass
class StateExecutor:
    """``before``: called with the number of each pass, so that a test can interrupt the work."""

    spec: ModelSpec = field(default_factory=tiny_spec)
    num_blocks: int = 64
    block_size: int = 16
    path: str = "fake"
    before: Callable[[int], None] = lambda number: None
    sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = np.full(self.num_blocks * self.block_size, EMPTY, dtype=np.int64)

    @property
    def vocab_size(self) -> int:
        return self.spec.vocab_size

    def forward_with_states(
        self, batch: ForwardBatch, layers: Sequence[int]
    ) -> tuple[FloatArray, FloatArray]:
        self.before(len(self.sizes))
        check_batch(batch, self)  # type: ignore[arg-type]
        self.sizes.append(len(batch.tokens))
        states = []
        for row in range(len(batch.tokens)):
            owner = batch.sequences[row]
            blocks = batch.blocks[batch.block_offsets[owner] : batch.block_offsets[owner + 1]]
            slots = np.arange(batch.prefix_lengths[row])
            physical = blocks[slots // self.block_size] * self.block_size + slots % self.block_size
            self.store[physical[-1]] = batch.tokens[row]
            path = self.store[physical]
            assert EMPTY not in path, "a row reads a slot that was never written"
            states.append(_state(tuple(path.tolist()), layers, self.spec.hidden_size))
        return np.empty((0, self.vocab_size), np.float32), np.stack(states)
