"""Who computes how many tokens in the next forward.

There are no phases: each running request has *pending* tokens (known, not computed), one when it decodes and
many while its prompt is read. Those that decode have a row each, always. Beside them prompts are read in
chunks small enough that a step takes not much longer (:mod:`~paceline.engine.prompt_pace`); with nobody to
delay, a forward is filled. Rows and blocks that are left over may hold drafts.

Requests run in the order of their rank: better priorities first, then older ones. When the cache is full the
last in rank gives up its blocks and computes its tokens again later, but for what the prefix cache still has.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paceline.config import EngineConfig
from paceline.engine.outputs import EngineLoad
from paceline.engine.prompt_pace import PromptPace
from paceline.engine.request import Request
from paceline.engine.waiting import WaitingQueue
from paceline.errors import QueueFullError
from paceline.kv.block_pool import BlockPool
from paceline.kv.prefix_cache import PrefixCache

WORTH_WAITING = 4
"""A prompt waits for so many blocks that another request is about to compute; fewer are sooner read twice."""

MOST_READ_AGAIN = 32
"""Tokens that are computed again to give a drafter their states: it drafts better for the whole reply."""


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
    """``running``: in order of rank. ``num_prefix_queries``: tokens of requests that began or came back to
    run; ``num_prefix_hits``: those of them that were not computed because the prefix cache had them.
    """

    def __init__(self, config: EngineConfig, pool: BlockPool, block_size: int) -> None:
        self._config = config
        self._pool = pool
        self._block_size = block_size
        self.prefix = PrefixCache(pool) if config.enable_prefix_caching else None
        self.pace = PromptPace(config.prompt_stretch)
        self.waiting = WaitingQueue()
        self.running: list[Request] = []
        self.num_prefix_queries = 0
        self.num_prefix_hits = 0

    def plan(self) -> list[Plan]:
        """Return the next forward's plans, their slots reserved; empty only when there is no request."""
        self._admit()
        plans = self._reserve(self._shares())
        left = self._config.max_batch_tokens - sum(plan.num_pending for plan in plans)
        self._add_drafts(plans, left)
        return plans

    def remove(self, request: Request) -> None:
        """Forget a request that has ended."""
        if request in self.running:
            self.running.remove(request)
        else:
            self.waiting.remove(request)

    def remember(self, request: Request) -> None:
        """Tell the prefix cache of the blocks that a request has filled since the last call."""
        full = request.computed // self._block_size
        if self.prefix is not None and full > request.num_remembered:
            keys = request.keys.first(full)
            self.prefix.remember(request.table, keys, request.num_remembered, full)
            request.num_remembered = full

    @property
    def load(self) -> EngineLoad:
        """How busy the engine is."""
        return EngineLoad(
            len(self.running),
            len(self.waiting),
            self._pool.num_blocks,
            self._pool.num_free,
            self._pool.num_idle,
            self.num_prefix_queries,
            self.num_prefix_hits,
        )

    def check_queue(self, now: float) -> None:
        """Raise ``QueueFullError`` when no more requests may wait."""
        most = self._config.max_queue
        if most is None or self.waiting.num_new < most:
            return
        # As long as the longest of them has waited: it tells how fast the queue moves, and needs no model.
        oldest = min(request.counts.arrived for request in self.waiting)
        raise QueueFullError(
            f"{self.waiting.num_new} requests wait already (max_queue={most}): try again later or raise "
            f"max_queue",
            max(1.0, now - oldest),
        )

    def learn(self, plans: Sequence[Plan], num_drafted: Sequence[int], seconds: float) -> None:
        """Take the time of the forward of ``plans``, which were already planned and not yet advanced."""
        decode_rows = prompt_rows = 0
        for plan, drafted in zip(plans, num_drafted, strict=True):
            if plan.request.pending == 1:
                decode_rows += 1 + drafted
            else:
                prompt_rows += plan.num_pending + drafted
        self.pace.learn(decode_rows, prompt_rows, seconds)

    def _admit(self) -> None:
        """Start waiting requests while places and blocks are left."""
        while (request := self.waiting.first()) is not None:
            self._adopt(request)
            if not self._fits(request):
                self._make_way(request)
            if not self._fits(request):
                request.forget_cache()
                break
            self.waiting.start(request)
            insort(self.running, request, key=_rank)
            self.num_prefix_queries += request.known
            self._count_hits(request, request.computed)

    def _fits(self, request: Request) -> bool:
        """Whether there is a place, and blocks for all known tokens: half a prompt helps nobody."""
        if len(self.running) >= self._config.max_num_requests:
            return False
        return request.table.blocks_missing(request.known) <= self._pool.num_free - _promised(self.running)

    def _make_way(self, request: Request) -> None:
        """Preempt requests of worse priority for this one, if that is enough to start it."""
        worse = [other for other in self.running if other.priority > request.priority]
        staying = self.running[: len(self.running) - len(worse)]
        if len(staying) >= self._config.max_num_requests:
            return
        gain = sum(not self._pool.is_shared(block) for other in worse for block in other.table.blocks)
        room = self._pool.num_free - _promised(staying) + gain
        if request.table.blocks_missing(request.known) > room:
            return
        while len(self.running) > len(staying) and not self._fits(request):
            self._preempt(self.running.pop())

    def _shares(self) -> dict[int, int]:
        """Return how many pending tokens each running request computes, by its number.

        The first prompt in rank gets half of the rows for prompts, so that it never stands still; the other
        half goes to the shortest ones of its priority, which would wait long behind a long one. What is left
        goes on in order of rank.
        """
        shares = {request.number: 1 for request in self.running if request.pending == 1}
        readers = [] if len(shares) == len(self.running) else self._readers()
        if not readers:
            return shares
        left = self._config.max_batch_tokens - len(shares)
        left = self.pace.num_rows(len(shares), len(readers), left)
        first, *others = readers
        equals = [other for other in others if other.priority == first.priority]
        half = -(-left // 2) if equals else left
        left -= _give(shares, [first], half)
        left -= _give(shares, sorted(equals, key=lambda other: other.pending), left)
        _give(shares, readers, left)
        return shares

    def _readers(self) -> list[Request]:
        """Return the requests that read prompts now, in order of rank.

        One that goes on with blocks which another is about to compute waits for them.
        """
        readers: list[Request] = []
        coming: set[bytes] = set()
        for request in self.running:
            if request.pending == 1:
                continue
            if self.prefix is not None:
                self._count_hits(request, self._adopt(request))
                start = request.computed // self._block_size
                keys = request.keys.first(self._num_shareable(request))[start:]
                if sum(key in coming for key in keys) >= WORTH_WAITING and keys[0] in coming:
                    continue
                coming.update(keys)
            readers.append(request)
        return readers

    def _num_shareable(self, request: Request) -> int:
        """Full blocks that others may have: the last known token is always computed, for its logits."""
        return (request.known - 1) // self._block_size

    def _adopt(self, request: Request) -> int:
        """Take what the prefix cache has of the pending tokens; return how many need not be computed."""
        if self.prefix is None:
            return 0
        start, stop = request.computed // self._block_size, self._num_shareable(request)
        found = self.prefix.match(request.keys.first(stop)[start:stop])
        if not found:
            return 0
        limit = (start + len(found)) * self._block_size
        crowd = min(len(self.running) + len(self.waiting), self._config.max_num_requests)
        wanted = request.states_wanted_from(limit, crowd)
        if limit - wanted <= MOST_READ_AGAIN:
            found = found[: max(0, wanted // self._block_size - start)]
        if not found:
            return 0
        before = request.computed
        request.table.replace(start, found)
        request.computed = (start + len(found)) * self._block_size
        request.num_remembered = start + len(found)
        return request.computed - before

    def _count_hits(self, request: Request, num_tokens: int) -> None:
        self.num_prefix_hits += num_tokens
        if not request.num_output_tokens:
            request.counts.num_cached_tokens += num_tokens

    def _reserve(self, shares: dict[int, int]) -> list[Plan]:
        plans: list[Plan] = []
        place = 0
        # Preempting shortens the list at its end, so it is not iterated over.
        while place < len(self.running):
            request = self.running[place]
            num_pending = shares.get(request.number, 0)
            if num_pending:
                if not self._make_room(request, num_pending):
                    break
                plans.append(Plan(request, num_pending))
            place += 1
        return plans

    def _make_room(self, request: Request, num_pending: int) -> bool:
        """Reserve slots, at the cost of later ranks; False when the request itself had to go."""
        while request.table.blocks_missing(request.computed + num_pending) > self._pool.num_free:
            last = self.running.pop()
            self._preempt(last)
            if last is request:
                return False
        request.table.reserve(request.computed + num_pending)
        return True

    def _preempt(self, request: Request) -> None:
        request.forget_cache()
        request.counts.num_preemptions += 1
        if not request.num_output_tokens:
            request.counts.num_cached_tokens = 0
        self.waiting.put_back(request)

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


def _rank(request: Request) -> tuple[int, int]:
    return request.priority, request.number


def _promised(requests: Iterable[Request]) -> int:
    """Return how many blocks running requests still need for what they know."""
    return sum(request.table.blocks_missing(request.known) for request in requests)


def _give(shares: dict[int, int], requests: Iterable[Request], left: int) -> int:
    """Give ``left`` rows to requests in order, each at most what it has pending; return how many went."""
    given = 0
    for request in requests:
        more = min(request.pending - shares.get(request.number, 0), left - given)
        if more > 0:
            shares[request.number] = shares.get(request.number, 0) + more
            given += more
    return given
