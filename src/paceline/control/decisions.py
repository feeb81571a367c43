"""What was decided in each step and why: kept only when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paceline.records import BatchLoad

Reason = Literal[
    "pays",
    "does not pay",
    "full batch",
    "resting",
    "no candidates",
    "no budget",
    "guarded",
    "timing",
    "asked by name",
]


@dataclass(frozen=True, slots=True)
class Candidates:
    """``num_nodes`` that one source offered; ``expected_tokens``: the sum of their path probabilities."""

    source: str
    num_nodes: int
    expected_tokens: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What a drafter chose in one step.

    ``predicted_speed``: expected tokens per plain token's time (plain decoding: 1). ``expected_tokens``:
    drafted tokens it expected to be kept. ``spent``: cost of drafting in one-row forwards.
    """

    candidates: tuple[Candidates, ...]
    num_nodes: int
    expected_tokens: float
    predicted_speed: float
    spent: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One verify step of a request.

    ``position``: output tokens before the step. ``load``: the forward before this draft. ``budget``: most
    nodes that were allowed; ``num_refused``: those that the guard took off it. ``num_drafted``,
    ``num_accepted``, ``num_committed``: tokens. ``draft_cost``: what the draft added to the step by the cost
    table, in plain tokens, so the step gained
    ``num_committed - 1 - draft_cost``. ``decision``: ``None`` for drafters that keep none.
    """

    position: int
    load: BatchLoad
    budget: int
    num_refused: int
    num_drafted: int
    num_accepted: int
    num_committed: int
    draft_cost: float
    decision: Decision | None = None

    @property
    def reason(self) -> Reason:
        """Why as much was drafted as was."""
        if self.decision is not None:
            return self.decision.reason
        if self.num_drafted:
            return "asked by name"
        if self.num_refused and not self.budget:
            return "guarded"
        return "no candidates" if self.budget else "no budget"

    @property
    def gain(self) -> float:
        """Plain tokens gained (below 0: lost) by what the cost table says."""
        return self.num_committed - 1 - self.draft_cost
