"""Acceptance rules found in the wild that are wrong (design.md §5). A test that misses one says nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from paceline.check.exact_law import Reply
from paceline.check.rehearsal import NO_ROWS, BookSampler, LawBook, Rehearsal
from paceline.engine.accept import Acceptance, accept
from paceline.records import Draft, FloatArray, TokenLaw
from paceline.sampling.sampler import RequestSampler


@dataclass(frozen=True, slots=True)
class Control:
    """``filters``: parameters under which the mistake shows. ``build`` makes its rehearsal."""

    name: str
    filters: dict[str, Any]
    build: Callable[[LawBook], Rehearsal]


def _walk(sampler: RequestSampler, draft: Draft, keeps: Callable[[TokenLaw, int], bool]) -> Acceptance:
    """Keep tokens of a chain while ``keeps`` says so; draw the one token more from p."""
    path: Reply = ()
    for depth, token in enumerate(draft.tree.tokens):
        law = sampler.law(NO_ROWS[0], path)
        if not keeps(law, token):
            return Acceptance(tuple(range(depth)), _drawn(sampler, law, depth), "recovered")
        path = (*path, token)
    return Acceptance(
        tuple(range(len(path))), _drawn(sampler, sampler.law(NO_ROWS[0], path), len(path)), "bonus"
    )


def _drawn(sampler: RequestSampler, law: TokenLaw, depth: int) -> int:
    return sampler.chance.draw(law, sampler.root + 1 + depth)


def _argmax(sampler: RequestSampler, draft: Draft, rows: FloatArray) -> Acceptance:
    return _walk(sampler, draft, lambda law, token: token == int(law.ids[law.probs.argmax()]))


def _half_of_max(sampler: RequestSampler, draft: Draft, rows: FloatArray) -> Acceptance:
    return _walk(sampler, draft, lambda law, token: law.prob(token) >= 0.5 * float(law.probs.max()))


def _verified_at_one(book: LawBook) -> Rehearsal:
    """The request's temperature shapes the draft; acceptance judges by the target's law at temperature 1."""
    warm = replace(book.params, temperature=1.0)

    def rule(sampler: RequestSampler, draft: Draft, rows: FloatArray) -> Acceptance:
        assert isinstance(sampler, BookSampler)
        judge = BookSampler(
            lambda reply, path: book.under(warm, "p", reply, path), sampler.rule, sampler.chance
        )
        for token in sampler.reply:
            judge.append(token)
        return accept(judge, draft, rows)

    return Rehearsal(book, "rejection", rule)


def _before_filters(book: LawBook) -> Rehearsal:
    """The draft's tokens pass the filters, but the law they are judged by does not."""
    bare = replace(book.params, top_k=0, top_p=1.0, min_p=0.0)
    return Rehearsal(
        book, "rejection", accept, judged_laws=lambda reply, path: book.under(bare, "q", reply, path)
    )


CONTROLS = (
    Control("argmax comparison", {"temperature": 1.0}, lambda book: Rehearsal(book, "rejection", _argmax)),
    Control("q judged before filters", {"temperature": 1.5}, _before_filters),
    Control("verifying at temperature 1", {"temperature": 0.3}, _verified_at_one),
    Control(
        "half of the maximum", {"temperature": 1.0}, lambda book: Rehearsal(book, "rejection", _half_of_max)
    ),
)
"""Each is a rule that accepts too much or too little of what it should."""
