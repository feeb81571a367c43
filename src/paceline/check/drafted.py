"""The drafters in question, drawing unseeded replies through the whole engine on remembered forwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle

from paceline.check.exact_law import Reply
from paceline.check.paths import MemoExecutor
from paceline.check.rehearsal import NUM_TOKENS
from paceline.check.subject import Subject, run_to_end
from paceline.config import Acceptance
from paceline.drafters.base import Drafter
from paceline.drafters.draft_model import DraftModel, DraftModelDrafter, DraftModelOptions
from paceline.drafters.eagle3 import Eagle3Drafter, Sampling
from paceline.drafters.verify_cost import VerifyCost
from paceline.sampling.chance import SeededChance
from paceline.sampling.params import SamplingParams

_MAX_DRAFT = NUM_TOKENS - 1
_LENGTHS = (NUM_TOKENS, NUM_TOKENS + 1)
"""Lengths of requests, in turns, which bound their drafts: the first kind ends with a bonus token that is
judged, the second drafts all tokens behind the first. Longer drafts would be judged no better, and each would
visit prefixes of its own."""
_FILTERS = {"top_k": 4, "repetition_penalty": 1.1, "presence_penalty": 0.2}


@dataclass(frozen=True, slots=True)
class DraftedCase:
    """One drafter under one rule. ``build`` gets the executor that remembers."""

    name: str
    build: Callable[[MemoExecutor], Drafter]
    params: SamplingParams


def drafted_cases(subject: Subject) -> list[DraftedCase]:
    """Return each drafter's cases: its certain drafts, and both rules where it can draw its drafts."""
    cases: list[DraftedCase] = []
    for name, drafter in subject.drafters.items():
        if isinstance(drafter, DraftModelDrafter):
            cases += _sampled(name, partial(_remembering, drafter))
            continue
        if isinstance(drafter, Eagle3Drafter):
            cases.append(DraftedCase(name, partial(_eager, drafter, "tree"), _params("auto")))
            cases += _sampled(f"{name}, drawn", partial(_eager, drafter, "chain"))
            continue
        cases.append(DraftedCase(name, lambda _, drafter=drafter: drafter, _params("auto")))  # type: ignore[misc]
    return cases


def _sampled(name: str, build: Callable[[MemoExecutor], Drafter]) -> list[DraftedCase]:
    rules: tuple[Acceptance, ...] = ("rejection", "block")
    return [DraftedCase(f"{name}: {rule}", build, _params(rule)) for rule in rules]


def _params(rule: Acceptance) -> SamplingParams:
    return SamplingParams(
        **_FILTERS,  # type: ignore[arg-type]
        max_tokens=_LENGTHS[-1],
        ignore_eos=True,
        num_draft_tokens=_MAX_DRAFT,
        acceptance=rule,
    )


def _remembering(drafter: DraftModelDrafter, memo: MemoExecutor) -> Drafter:
    """Return the same draft model on remembered forwards of its own."""
    model = drafter.model
    executor = MemoExecutor(model.executor, memo.num_blocks)
    return DraftModelDrafter(
        DraftModel(model.name, executor, model.vocabulary),
        target=memo,
        target_vocabulary=model.vocabulary,
        options=DraftModelOptions(min_copy_agreement=0.0),
    )


def _eager(drafter: Eagle3Drafter, sampling: Sampling, memo: MemoExecutor) -> Drafter:
    """Return the same head, drafting at any price.

    A head expects little of sampled requests and is silent in their first steps, which are the ones judged.
    """
    free = VerifyCost((1.0, 1.0), min_gain=0.0)
    options = replace(drafter.options, sampling=sampling, verify_cost=free, step_cost=0.0, catch_up_cost=0.0)
    return Eagle3Drafter(drafter.head, options=options)


def draw_drafted(
    subject: Subject, case: DraftedCase, context: Reply, seeds: Iterable[int]
) -> tuple[Counter[Reply], int]:
    """Return how often each reply of ``NUM_TOKENS`` tokens came, one unseeded request for each seed, and how
    many tokens were drafted for them all.
    """
    blocks = 4 + 2 * (-(-(len(context) + _LENGTHS[-1] + _MAX_DRAFT) // subject.executor.block_size))
    memo = MemoExecutor(subject.executor, blocks)
    noise = [0]
    engine = subject.engine({"checked": case.build(memo)}, memo, lambda _: SeededChance(noise[0]), False)
    kinds = cycle(replace(case.params, drafter="checked", max_tokens=length) for length in _LENGTHS)
    counts: Counter[Reply] = Counter()
    num_drafted = 0
    for seed, params in zip(seeds, kinds, strict=False):
        noise[0] = seed
        reply = run_to_end(engine, {"0": (context, params)})["0"]
        counts[reply.token_ids[:NUM_TOKENS]] += 1
        num_drafted += reply.metrics.num_draft_tokens
    return counts, num_drafted
