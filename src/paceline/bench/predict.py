"""The speed-up that the cost table predicts for the acceptance that was measured.

If it agrees with the speed-up that was measured, the table is right and gains or losses come from acceptance;
if not, time goes where the table does not look (docs/benchmarking.md reads both cases).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from paceline.bench.records import Measured
from paceline.theory.cost_table import CostTable

AUTO = "auto"


def predicted_speedup(
    replies: Sequence[Measured], plain: Sequence[Measured], drafter: str, batch: int, costs: CostTable
) -> float | None:
    """Return predicted time of plain decoding ÷ predicted time with ``drafter``, prompts included.

    A reply takes as long to its first token as plain decoding's measured TTFT, and then one step for each
    further verify step: (fixed cost + r(B · rows) + B · drafting) · row_seconds with B requests at once. Rows
    and levels are the means of the drafts that were made (see :func:`drafting_cost`), steps without a draft
    cost a plain step. ``None`` when the table does not know the drafter, nothing was timed, or no reply went
    beyond its first token.
    """
    if drafter != AUTO and not costs.knows(drafter):
        return None
    before = _first_token(plain)
    steps, plain_steps = (fmean(reply.num_steps - 1 for reply in side) for side in (replies, plain))
    if before is None or plain_steps <= 0:
        return None
    unit = costs.row_seconds
    per_token = fmean(len(reply.token_ids) for reply in plain) / fmean(len(r.token_ids) for r in replies)
    plain_time = before + plain_steps * unit * (costs.step_cost + costs.r(batch))
    mine = before + steps * unit * _step_cost(replies, drafter, batch, costs)
    return plain_time / (mine * per_token)


def _first_token(replies: Sequence[Measured]) -> float | None:
    waits = [reply.deliveries[0].seconds for reply in replies if reply.deliveries]
    return fmean(waits) if waits else None


def _step_cost(replies: Sequence[Measured], drafter: str, batch: int, costs: CostTable) -> float:
    """Return the mean cost of a step in one-row forwards."""
    num_steps = sum(reply.num_steps for reply in replies)
    num_drafts = sum(reply.num_drafts for reply in replies)
    plain = costs.step_cost + costs.r(batch)
    if not num_drafts:
        return plain
    nodes = sum(reply.num_draft_tokens for reply in replies) / num_drafts
    levels = sum(sum(reply.drafts_at) for reply in replies) / num_drafts
    seconds = sum(reply.draft_seconds for reply in replies) / num_drafts
    drafting = drafting_cost(costs, drafter, levels, nodes, seconds)
    cost = costs.step_cost + r_between(costs, batch * (1 + nodes)) + batch * drafting
    share = num_drafts / num_steps
    return share * cost + (1 - share) * plain


def drafting_cost(costs: CostTable, drafter: str, levels: float, nodes: float, seconds: float) -> float:
    """Return what a mean draft costs in one-row forwards; ``seconds``: spent in the drafter for it.

    ``auto`` mixes drafters of very different cost, so its seconds count as they were; the table adds what
    picking the successors of each row costs, which is the engine's time.
    """
    if drafter == AUTO:
        row = costs.cost_of(AUTO).per_node if costs.knows(AUTO) else 0.0
        return seconds / costs.row_seconds + (1 + nodes) * row
    draft = costs.cost_of(drafter)
    return draft.fixed + draft.per_level * levels + draft.per_node * nodes


def r_between(costs: CostTable, rows: float) -> float:
    """Return r between whole row counts, where a mean lies."""
    below = int(rows)
    return costs.r(below) + (rows - below) * (costs.r(below + 1) - costs.r(below))
