"""What the cost table says of a drafter whose acceptance is known: speed, break-even, best chain."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from paceline.advise.measure import Runs
from paceline.theory.cost_table import CostTable
from paceline.theory.expected import break_even_alpha
from paceline.theory.planner import best_plan, chain_offer

LONGEST = 8


@dataclass(frozen=True, slots=True)
class Prediction:
    """``speedup``: predicted over plain decoding, from tokens per step and the cost table. ``acceptance``:
    observed per judged position. ``break_even``: acceptance at which a draft of this size is as fast as none;
    ``None`` when even full acceptance would not pay for it. ``best_chain``: the chain length with the most
    expected tokens per second at this acceptance; 0: none.
    """

    speedup: float
    acceptance: float
    break_even: float | None
    best_chain: int


def predict(runs: Runs, table: CostTable) -> Prediction | None:
    """Return the prediction for what was measured; ``None`` for a drafter that has no cost or never drafted.

    A step that drafts costs drafting and r(nodes + 1), one that does not r(1) (and asking for nothing is
    taken to be free); the fixed part of a step is in both.
    """
    drafts = sum(turn.num_drafts for turn in runs.turns)
    steps = sum(turn.num_steps for turn in runs.turns)
    name = runs.cost_name or runs.entrant.drafter
    if not drafts or not steps or not table.knows(name):
        return None
    total = runs.total
    nodes = total.num_draft_tokens / drafts
    levels = max(1, round(_mean_levels(runs, nodes)))
    drafted = _between(lambda count: table.r(count + 1) + table.draft(name, levels, count), nodes)
    plain = table.step_cost + 1.0
    share = min(1.0, drafts / steps)
    mean_cost = (share * (table.step_cost + drafted) + (1.0 - share) * plain) / plain
    extra = max(0.0, (table.step_cost + drafted) / plain - 1.0)
    rates = [min(1.0, rate) for rate in total.conditional_acceptance_at]
    plan = best_plan(table, [chain_offer(name, _extended(rates))], limit=LONGEST)
    return Prediction(
        runs.tokens_per_step / mean_cost, total.rate, break_even_alpha(levels, extra / levels), plan.depth
    )


def _mean_levels(runs: Runs, nodes: float) -> float:
    """Return how deep drafts are on average: as judged positions tell, and no more than their nodes.

    Positions behind a refusal are not judged, so of a chain all nodes are levels; a tree's judged levels say
    how deep it goes at least.
    """
    total = runs.total
    deepest = len(total.tried_at)
    return min(nodes, float(deepest)) if deepest else nodes


def _between(cost: Callable[[int], float], nodes: float) -> float:
    low, high = math.floor(nodes), math.ceil(nodes)
    at_low, at_high = cost(low), cost(high)
    return float(at_low + (at_high - at_low) * (nodes - low))


def _extended(rates: list[float]) -> list[float]:
    """Return acceptance down to ``LONGEST`` levels, deeper ones as the deepest seen."""
    known = rates[:LONGEST] or [0.0]
    return known + [known[-1]] * (LONGEST - len(known))
