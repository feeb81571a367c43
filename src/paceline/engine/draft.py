"""Ask the drafters of a forward, one after another, for at most their budgets; trust nothing they say.

Each is told how many rows the forward has by then, so that those who adapt draft less in a full batch. Before
a guarded request's drafter is asked, its ledger says how much it may lose; behind the step the ledger is
settled. What is drafted never changes a reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from paceline.control.decisions import Decision, StepRecord
from paceline.control.draft_clock import DraftClock
from paceline.control.guard import Guard
from paceline.drafters.base import AdaptiveSession, DraftSession
from paceline.drafters.head_pace import patience
from paceline.errors import DrafterError
from paceline.records import (
    ALONE,
    EMPTY_DRAFT,
    NO_SURCHARGE,
    BatchLoad,
    Draft,
    StepObservation,
)

if TYPE_CHECKING:
    from paceline.engine.scheduler import Plan

_TIMED = Decision((), 0, 0.0, 1.0, 0.0, "timing")


@dataclass(slots=True)
class Pacing:
    """How one request's drafting is bounded and recorded.

    ``guard``: the ledger that counts its costs. ``is_guarded``: whether the ledger also bounds the drafts.
    ``is_adaptive``: its session is an :class:`AdaptiveSession`. ``records``: one per verify step, ``None``
    unless wanted. ``rest``: steps to come in which the session is left alone; ``unseen``: tokens committed
    while it was not asked, which it is told of before it is asked again. ``num_silent``: steps in a row
    without a draft; ``is_at_rest``: whether nobody was asked in the last one. ``wants_states`` and
    ``wants_top``: whether the session wants hidden states, or the target's likeliest tokens, of each step.
    The others are of the present step; ``spent`` and ``decision`` as in an adaptive session; ``table_steps``:
    cost of its draft by the table alone, in plain steps.
    """

    guard: Guard
    is_guarded: bool = False
    is_adaptive: bool = False
    records: list[StepRecord] | None = None
    rest: int = 0
    unseen: list[int] = field(default_factory=list)
    load: BatchLoad = ALONE
    budget: int = 0
    num_refused: int = 0
    num_silent: int = 0
    is_at_rest: bool = True
    is_asked: bool = False
    wants_states: bool = True
    wants_top: bool = False
    spent: float = 0.0
    table_steps: float = 0.0
    decision: Decision | None = None

    def open(self, budget: int, load: BatchLoad, is_plain_wanted: bool = False) -> int:
        """Return how many nodes may be drafted in a step with ``load``.

        ``is_plain_wanted``: none, if it can be had cheaply; that is, unless drafts have been winning. But
        where they seem cheaper than the table says, a plain step may have become shorter unheard, and they
        only seem to win.
        """
        self.load = load
        is_winning = self.guard.is_full and load.surcharge.factor >= 1.0
        is_timed = is_plain_wanted and self.is_guarded and not is_winning
        if self.rest or is_timed:
            self.rest = max(0, self.rest - 1)
            self.budget = self.num_refused = 0
            self.is_asked, self.spent, self.decision = False, 0.0, _TIMED if is_timed else None
            return 0
        self.budget = self.guard.room(budget, load) if self.is_guarded else budget
        self.num_refused = budget - self.budget
        self.is_asked = self.budget > 0
        if self.is_guarded and self.num_silent >= patience(load.num_requests):
            self.wants_states = False  # it costs every request of the batch the copies; nothing came of them
        self.spent, self.decision = 0.0, None
        return self.budget

    def ask(self, session: DraftSession) -> Draft:
        """Return the session's draft, and note what it says of itself."""
        self.tell_unseen(session)
        if not self.is_adaptive:
            draft = session.propose(self.budget)
            self.spent = self.guard.drafting(max(draft.tree.depths, default=0))
            return draft
        adaptive = cast(AdaptiveSession, session)
        adaptive.meet(self.load)
        draft = adaptive.propose(self.budget)
        self.spent, self.decision = adaptive.spent, adaptive.decision
        self.heed_states(session)
        self.rest = adaptive.rest
        return draft

    def heed_states(self, session: DraftSession) -> None:
        """Let an adaptive session that wants no states any more have none for the rest of the request."""
        if self.is_adaptive:
            self.wants_states = self.wants_states and cast(AdaptiveSession, session).wants_states

    def keeps(self, committed: tuple[int, ...]) -> bool:
        """Keep the tokens of a step for later, if the session was not asked in it and wants nothing else.

        In a full batch a drafter that costs too much is held back in nearly every step of every request.
        """
        if self.is_asked or self.wants_states or self.wants_top:
            return False
        self.unseen.extend(committed)
        return True

    def tell_unseen(self, session: DraftSession) -> None:
        """Tell the session of the steps in which it was not asked."""
        if self.unseen:
            session.observe(StepObservation(tuple(self.unseen), 0))
            self.unseen.clear()

    def settle(self, position: int, num_drafted: int, num_accepted: int, num_committed: int) -> None:
        """Book what a step cost and brought, and record it. ``position``: output tokens before it."""
        if not num_drafted and not self.spent and self.records is None:
            # Most steps of a full batch are such, and there are many requests to do this for.
            self.table_steps, self.is_at_rest = 0.0, True
            self.num_silent += 1
            self.guard.earn(num_committed)
            return
        self.table_steps = self.guard.table_steps(self.load, num_drafted, self.spent)
        cost = self.guard.settle(self.load, num_drafted, self.spent, num_committed, self.is_at_rest)
        self.is_at_rest = not num_drafted and not self.spent
        self.num_silent = 0 if num_drafted else self.num_silent + 1
        if self.records is not None:
            step = (num_drafted, num_accepted, num_committed)
            offered = (self.load, self.budget, self.num_refused)
            self.records.append(StepRecord(position, *offered, *step, cost, self.decision))


def propose_all(plans: Sequence[Plan], vocab_size: int, clock: DraftClock | None = None) -> list[Draft]:
    """Return one draft per plan, made in order: a drafter sees the rows of those before it.

    ``clock``: what it has heard is added to the costs, and what it would like to hear next is heeded.
    """
    surcharge = NO_SURCHARGE
    if clock is not None:
        surcharge = clock.surcharge if len(plans) == 1 else clock.in_batches
    is_plain_wanted = clock is not None and clock.wants_plain and _is_alone(plans)
    num_rows = sum(plan.num_pending for plan in plans)
    drafts: list[Draft] = []
    for plan in plans:
        load = BatchLoad(num_rows, len(plans), surcharge)
        draft = propose(plan, vocab_size, load, is_plain_wanted)
        num_rows += len(draft)
        drafts.append(draft)
    return drafts


def hear(clock: DraftClock, plans: Sequence[Plan], seconds: float) -> None:
    """Tell the clock of a step that has been settled, if it can be compared with others.

    One in which a drafter without a price was asked and gave nothing is neither a plain step nor a draft.
    """
    pacing = plans[0].request.pacing if plans else None
    cost = 0.0 if pacing is None else pacing.table_steps
    is_odd = pacing is not None and pacing.is_asked and not cost and not pacing.guard.is_priced
    if is_odd or not _is_alone(plans):
        clock.skip()
    else:
        clock.hear(seconds, cost)


def _is_alone(plans: Sequence[Plan]) -> bool:
    """Return whether one request decodes and nothing else is done: such steps can be compared."""
    return len(plans) == 1 and plans[0].num_pending == 1


def propose(plan: Plan, vocab_size: int, load: BatchLoad = ALONE, is_plain_wanted: bool = False) -> Draft:
    """Return the draft for ``plan``, empty without budget, drafter, or idea; see ``Request.with_session``."""
    pacing = plan.request.pacing
    if pacing is None or not (budget := pacing.open(plan.draft_budget, load, is_plain_wanted)):
        return EMPTY_DRAFT
    drafts = [EMPTY_DRAFT]

    def ask(session: DraftSession) -> None:
        draft = pacing.ask(session)
        check(draft, budget, vocab_size)
        drafts[0] = plan.request.sampler.cut(draft)

    plan.request.with_session(ask)
    return drafts[0]


def check(draft: Draft, budget: int, vocab_size: int) -> None:
    """Raise ``DrafterError`` for a draft that would make the target's work or the output's law wrong."""
    if len(draft) > budget:
        raise DrafterError(f"the draft has {len(draft)} nodes but the budget was {budget}")
    for token in draft.tree.tokens:
        if not 0 <= token < vocab_size:
            raise DrafterError(f"drafted token {token} is outside the vocabulary of {vocab_size}")
    for token, law in zip(draft.tree.tokens, draft.laws or (), strict=False):
        if law.prob(token) <= 0.0:
            raise DrafterError(
                f"drafted token {token} has probability 0 in the law it is said to be drawn from"
            )
