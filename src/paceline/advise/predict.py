"""What the cost table says of a drafter whose acceptance is known: speed, break-even, best chain."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.advise.measure import Runs
from paceline.bench.predict import AUTO, drafting_cost, r_between
from paceline.theory.cost_table import CostTable
from paceline.theory.expected import break_even_alpha
from paceline.theory.planner import best_plan, chain_offer

LONGEST = 8


@dataclass(frozen=True, slots=True)
class Prediction:
    """``speedup``: predicted over plain decoding, from tokens per step and the cost table. ``acceptance``:
    observed per judged position. ``break_even``: acceptance at which a draft of this size is as fast as none;
    ``None`` when even full acceptance would not pay for it. ``best_chain``: the chain length with the most
    expected tokens per second at this acceptance; 0: none, or the drafter chooses itself.
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
    name, total = runs.entrant.drafter, runs.total
    drafts = sum(turn.num_drafts for turn in runs.turns)
    steps = sum(turn.num_steps for turn in runs.turns)
    if not drafts or not steps or not (name == AUTO or table.knows(name)):
        return None
    nodes = total.num_draft_tokens / drafts
    # Positions behind a refusal are not judged, so of a chain all nodes are levels; a tree's judged levels
    # say how deep it goes at least.
    levels = max(1, round(min(nodes, len(total.tried_at) or nodes)))
    seconds = sum(turn.draft_seconds for turn in runs.turns) / drafts
    drafted = r_between(table, nodes + 1) + drafting_cost(table, name, levels, nodes, seconds)
    plain = table.step_cost + 1.0
    share = min(1.0, drafts / steps)
    mean_cost = (share * (table.step_cost + drafted) + (1.0 - share) * plain) / plain
    extra = max(0.0, (table.step_cost + drafted) / plain - 1.0)
    break_even = break_even_alpha(levels, extra / levels)
    return Prediction(runs.tokens_per_step / mean_cost, total.rate, break_even, _best_chain(runs, table))


def _best_chain(runs: Runs, table: CostTable) -> int:
    if runs.entrant.drafter == AUTO:  # chooses its lengths itself
        return 0
    rates = [min(1.0, rate) for rate in runs.total.conditional_acceptance_at[:LONGEST]] or [0.0]
    extended = rates + [rates[-1]] * (LONGEST - len(rates))  # deeper ones as the deepest seen
    return best_plan(table, [chain_offer(runs.entrant.drafter, extended)], limit=LONGEST).depth
