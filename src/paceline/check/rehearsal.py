"""Many draws of a reply's first tokens through the engine's acceptance rules, on remembered laws.

Each draw runs what the engine runs to choose tokens (``engine.accept``, the request's sampler, its chance)
with the laws of the user's own model; only the forward and the filters behind each prefix are computed once.
The drafts come from a *rehearsal* drafter: the target's logits with fixed noise on top. It is right often
enough that every branch of a rule is taken many times, whatever the user's drafter does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from paceline.check.exact_law import Reply
from paceline.config import Acceptance
from paceline.engine.engine import AcceptRule
from paceline.records import Draft, FloatArray, IntArray, TokenLaw
from paceline.sampling.chance import Chance, SeededChance
from paceline.sampling.params import SamplingParams
from paceline.sampling.sampler import RequestSampler
from paceline.tree import TokenTree

NUM_TOKENS = 3
"""Tokens whose joint law is tested: the fewest that hold an acceptance, a rejection behind it, a bonus."""
_BLUR = 1.0
"""Standard deviation of the noise on the drafter's logits."""
NO_ROWS: FloatArray = np.zeros((1 + 8, 1), dtype=np.float32)
"""Stands where the engine hands over logits; a :class:`BookSampler` knows the laws without."""

LawAt = Callable[[Reply, Reply], TokenLaw]


class LawBook:
    """The laws behind one prompt under one set of parameters, each made once by a real request's sampler.

    ``logits(path)`` float32 [V] of whole paths. A law belongs to the committed tokens and the drafted ones
    behind them: penalties must count both.
    """

    def __init__(self, logits: Callable[[Reply], FloatArray], prompt: Reply, params: SamplingParams) -> None:
        self._logits = logits
        self._prompt = prompt
        self.params = params
        self._laws: dict[object, TokenLaw] = {}

    def target(self, committed: Reply, path: Reply) -> TokenLaw:
        """Return p behind ``committed`` and the drafted ``path``."""
        return self._law("p", self.params, committed, path)

    def draft(self, committed: Reply, path: Reply) -> TokenLaw:
        """Return q, from blurred logits through the same filters."""
        return self._law("q", self.params, committed, path)

    def under(self, params: SamplingParams, kind: str, committed: Reply, path: Reply) -> TokenLaw:
        """Return p or q under other parameters: what a wrong rule judges by."""
        return self._law(kind, params, committed, path)

    def _law(self, kind: str, params: SamplingParams, committed: Reply, path: Reply) -> TokenLaw:
        key = (kind, params is self.params, committed, path)
        law = self._laws.get(key)
        if law is None:
            row = self._logits((*self._prompt, *committed, *path))
            sampler = RequestSampler(params, self._prompt, (), "rejection", SeededChance(0), len(row))
            for token in committed:
                sampler.append(token)
            law = self._laws[key] = sampler.law(self._blurred(row, path) if kind == "q" else row, path)
        return law

    def _blurred(self, row: FloatArray, path: Reply) -> FloatArray:
        rng = np.random.default_rng((len(path), *path[-1:]))
        return row + (_BLUR * rng.standard_normal(len(row))).astype(np.float32)


class BookSampler(RequestSampler):
    """A request's sampler that looks its laws up. ``reply``: the committed tokens."""

    __slots__ = ("_law_at", "reply")

    def __init__(self, law_at: LawAt, rule: Acceptance, chance: Chance) -> None:
        super().__init__(_PLAIN, (), (), rule, chance, 0)  # no logits of a part are ever spread
        self._law_at = law_at
        self.reply: Reply = ()

    def append(self, token: int) -> None:
        self._length += 1
        self.reply = (*self.reply, token)

    def draw(
        self, logits: FloatArray, path: Reply, ids: IntArray | None = None
    ) -> tuple[int, TokenLaw | None]:
        return super().draw(logits, path)  # the book's laws are on the whole vocabulary

    def law(self, logits: FloatArray, path: Reply) -> TokenLaw:
        return self._law_at(self.reply, path)


_PLAIN = SamplingParams()


@dataclass(frozen=True)
class Rehearsal:
    """One rule under one set of parameters. ``certain``: drafts are trees of likely tokens instead of draws.

    ``judged_laws``: what a draft says its tokens were drawn from; ``None``: the truth.
    """

    book: LawBook
    rule: Acceptance
    accept_rule: AcceptRule
    certain: bool = False
    judged_laws: LawAt | None = None

    def draw(self, seeds: Iterable[int]) -> Counter[Reply]:
        """Return how often each reply of ``NUM_TOKENS`` tokens came, one reply for each seed."""
        return Counter(self._reply(SeededChance(seed)) for seed in seeds)

    def _reply(self, chance: Chance) -> Reply:
        sampler = BookSampler(self.book.target, self.rule, chance)
        drafting = BookSampler(self.book.draft, self.rule, chance)
        while len(sampler.reply) < NUM_TOKENS:
            # So that a bonus token is among those that are judged.
            budget = max(1, NUM_TOKENS - 1 - len(sampler.reply))
            draft = self._tree(sampler.reply, budget) if self.certain else self._chain(drafting, budget)
            kept = self.accept_rule(sampler, draft, NO_ROWS)
            for token in (*(draft.tree.tokens[node] for node in kept.path), kept.final):
                sampler.append(token)
                drafting.append(token)
        return sampler.reply[:NUM_TOKENS]

    def _chain(self, drafting: BookSampler, budget: int) -> Draft:
        tokens: list[int] = []
        laws: list[TokenLaw] = []
        for _ in range(budget):
            path = tuple(tokens)
            token, law = drafting.draw(NO_ROWS[0], path)
            if law is not None:
                laws.append(law if self.judged_laws is None else self.judged_laws(drafting.reply, path))
            tokens.append(token)
        return Draft.chain(tokens, laws or None)

    @cached_property
    def _trees(self) -> dict[Reply, Draft]:
        return {}

    def _tree(self, reply: Reply, budget: int) -> Draft:
        """Return the two likeliest tokens, and the two likeliest behind each while the budget reaches."""
        draft = self._trees.get(reply)
        if draft is None:
            tokens, parents = list(self._best(reply, ())), [-1, -1]
            parents = parents[: len(tokens)]
            for parent in range(len(tokens) if budget > 1 else 0):
                children = self._best(reply, (tokens[parent],))
                tokens += children
                parents += [parent] * len(children)
            draft = self._trees[reply] = Draft(TokenTree(tuple(tokens), tuple(parents)))
        return draft

    def _best(self, reply: Reply, path: Reply) -> tuple[int, ...]:
        law = self.book.draft(reply, path)
        order = np.argsort(-law.probs, kind="stable")[:2]
        return tuple(law.ids[order].tolist())
