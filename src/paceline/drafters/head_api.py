"""What the drafters need of the executor that runs an EAGLE-3 head (``executors/eagle3.py``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from paceline.executors.base import ForwardBatch
from paceline.records import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class DraftShape:
    max_nodes: int
    max_depth: int
    width: int
    min_log_prob: float


@dataclass(frozen=True, slots=True)
class DraftedTree:
    tokens: IntArray
    parents: IntArray
    log_probs: FloatArray


class HeadExecutor(Protocol):
    """See ``executors/eagle3.py``."""

    @property
    def block_size(self) -> int: ...

    @property
    def num_blocks(self) -> int: ...

    @property
    def max_context(self) -> int: ...

    @property
    def draft_to_target(self) -> IntArray: ...

    def project(self, states: FloatArray) -> FloatArray: ...

    def forward(self, batch: ForwardBatch, g: FloatArray) -> tuple[FloatArray, FloatArray]: ...

    def draft(self, batch: ForwardBatch, states: FloatArray, shape: DraftShape) -> DraftedTree: ...
