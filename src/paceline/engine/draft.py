"""Ask a request's drafter for at most its budget, and trust nothing it says."""

from __future__ import annotations

from paceline.drafters.base import DraftSession
from paceline.engine.scheduler import Plan
from paceline.errors import DrafterError
from paceline.records import EMPTY_DRAFT, Draft


def propose(plan: Plan, vocab_size: int) -> Draft:
    """Return the draft for ``plan``, empty without budget, drafter, or idea; see ``Request.with_session``."""
    drafts = [EMPTY_DRAFT]

    def ask(session: DraftSession) -> None:
        draft = session.propose(plan.draft_budget)
        check(draft, plan.draft_budget, vocab_size)
        drafts[0] = draft

    if plan.draft_budget > 0:
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
