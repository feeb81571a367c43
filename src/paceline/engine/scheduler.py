"""Who computes how many tokens in the next forward.

There are no phases: each running request has *pending* tokens (known, not computed), one when it decodes and
many while its prompt is read. Older requests come first, and one joins only while a row is left: so at most
the youngest reads its prompt in chunks, and each of the others has its row. Rows and blocks that are left
over may hold drafts. When the cache is full the youngest request gives up its blocks and computes its tokens
again later.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from paceline.config import EngineConfig
from paceline.engine.request import Request
from paceline.kv.block_pool import BlockPool


@dataclass(slots=True)
class Plan:
    """A request's share of a forward: ``num_pending`` known and at most ``draft_budget`` drafted tokens."""

    request: Request
    num_pending: int
    draft_budget: int = 0

    @property
    def reaches_end(self) -> bool:
        """Whether the forward reads the last known token, so that the next one can be chosen."""
        return self.num_pending == self.request.pending


def advance(plan: Plan) -> bool:
    """Mark the pending tokens computed; return whether the request can now choose its next token."""
    reaches_end = plan.reaches_end
    plan.request.computed += plan.num_pending
    return reaches_end


class Scheduler:
    """``waiting`` and ``running`` are in order of arrival."""

    def __init__(self, config: EngineConfig, pool: BlockPool) -> None:
        self._config = config
        self._pool = pool
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def plan(self) -> list[Plan]:
        """Return the next forward's plans, their slots reserved; empty only when there is no request."""
        plans, left = self._plan_running()
        left = self._admit(plans, left)
        self._add_drafts(plans, left)
        return plans

    def remove(self, request: Request) -> None:
        """Forget a request that has ended."""
        if request in self.running:
            self.running.remove(request)
        else:
            self.waiting.remove(request)

    def _plan_running(self) -> tuple[list[Plan], int]:
        left = self._config.max_batch_tokens
        plans: list[Plan] = []
        # Preempting shortens the list at its end, so it is not iterated over.
        while len(plans) < len(self.running):
            request = self.running[len(plans)]
            num_pending = min(request.pending, left)
            if not self._make_room(request, num_pending):
                break
            plans.append(Plan(request, num_pending))
            left -= num_pending
        return plans, left

    def _make_room(self, request: Request, num_pending: int) -> bool:
        """Reserve slots, at the cost of younger requests; False when the request itself had to go."""
        while request.table.blocks_missing(request.computed + num_pending) > self._pool.num_free:
            youngest = self.running.pop()
            self._preempt(youngest)
            if youngest is request:
                return False
        request.table.reserve(request.computed + num_pending)
        return True

    def _preempt(self, request: Request) -> None:
        request.table.truncate(0)
        request.computed = 0
        request.counts.num_preemptions += 1
        self.waiting.appendleft(request)

    def _admit(self, plans: list[Plan], left: int) -> int:
        """Start waiting requests while rows, blocks and places are left; return the rows that still are."""
        while self.waiting and left > 0 and len(self.running) < self._config.max_num_requests:
            request = self.waiting[0]
            # All known tokens must fit, not only the first chunk: half a prompt in a full cache helps nobody.
            if request.table.blocks_missing(request.known) > self._pool.num_free:
                break
            num_pending = min(request.pending, left)
            request.table.reserve(num_pending)
            self.running.append(self.waiting.popleft())
            plans.append(Plan(request, num_pending))
            left -= num_pending
        return left

    def _add_drafts(self, plans: list[Plan], left: int) -> None:
        left = min(left, self._config.max_draft_rows)
        drafting = [plan for plan in plans if plan.reaches_end and plan.request.draft_budget > 0]
        for index, plan in enumerate(drafting):
            request = plan.request
            # An even share, at least one row while there are any; what one leaves over the others may use.
            share = -(-left // (len(drafting) - index))
            budget = min(request.draft_budget, share)
            while budget and request.table.blocks_missing(request.known + budget) > self._pool.num_free:
                budget -= 1
            plan.draft_budget = budget
            request.table.reserve(request.known + budget)
            left -= budget
