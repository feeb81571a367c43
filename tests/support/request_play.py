"""A request without text: drafts whose fate is drawn beforehand, and what the cost table says it took.

``truth(position, depth)`` says whether a draft's token at ``depth`` (1: behind the root) of the step at
``position`` is right; behind a wrong one all are wrong. The engine's ledger decides how much may be drafted.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from paceline.control.guard import Guard, Savings
from paceline.records import ALONE, BatchLoad
from paceline.theory.cost_table import CostTable

Truth = Callable[[int, int], bool]


@dataclass(frozen=True)
class Played:
    """``costs[i]``: plain tokens' time that token i took; ``drafted``: nodes per step."""

    costs: list[float]
    drafted: list[int]

    @property
    def slowdown(self) -> float:
        """Modelled time ÷ that of plain decoding."""
        return sum(self.costs) / len(self.costs)


def play_guarded(
    table: CostTable,
    truth: Truth,
    *,
    num_tokens: int,
    nodes: int = 7,
    drafter: str = "scripted",
    load: BatchLoad = ALONE,
    savings: Savings | None = None,
) -> Played:
    """Run one guarded request with a drafter that always drafts as much as it may, right or wrong."""
    guard = Guard(table, drafter, savings)
    costs: list[float] = []
    drafted: list[int] = []
    while len(costs) < num_tokens:
        count = guard.room(nodes, load)
        kept = 0
        while kept < count and truth(len(costs), kept + 1):
            kept += 1
        committed = kept + 1
        cost = guard.settle(load, count, guard.drafting(count) if count else 0.0, committed)
        costs += [(1.0 + cost) / committed] * committed
        drafted.append(count)
    guard.close()
    return Played(costs[:num_tokens], drafted)


def always(right: bool) -> Truth:
    """Return a drafter that is always right, or never."""
    return lambda _position, _depth: right


def with_rate(rate: Callable[[int], float], seed: int) -> Truth:
    """Return a drafter whose tokens are right with the probability ``rate(position)``, independently."""
    rng = random.Random(seed)
    return lambda position, _depth: rng.random() < rate(position)
