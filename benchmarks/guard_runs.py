"""Batches answered and timed, and the two sides of a case in turns of a few steps each.

On a shared machine the clock rate and the caches are another's within a second. Whole replies in turns then
compare one mood with the next: two plain runs differed by 20 %. So both sides answer at the same time, each
from its own key-value cache and with the same weights, and take turns of ``SLICE`` seconds.
"""

from __future__ import annotations

import gc
import logging
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from guard_cases import TOKENS, WRONG, Case, prompts_for

from paceline import LLM, SamplingParams
from paceline.config import SpecConfig
from paceline.drafters.none import NoneDrafter
from paceline.engine.engine import Engine
from paceline.engine.outputs import CompletionOutput

PLAIN = "none"
SETTLED = 64
"""Output tokens of a request after which a drafter that is always wrong must have been silenced."""
SLICE = 0.06
"""Seconds of a turn: some twenty steps, so that what the other side has left behind counts little."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One batch. ``seconds``: from the first prompt to the last token. ``late_speed``: tokens per second once
    each request had ``SETTLED`` tokens on average, 0 when they never had.
    """

    seconds: float
    replies: tuple[tuple[int, ...], ...]
    late_speed: float
    num_draft_tokens: int
    num_accepted_tokens: int
    num_steps: int

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.replies))


def answer(llm: LLM, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Answered:
    """Answer ``prompts`` at once, nothing known of earlier ones; the clock covers the engine's steps."""
    llm.start_afresh()
    assert params.drafter is not None
    llm.engine.drafter(params.drafter)
    gc.collect()
    return answer_on(llm, prompts, params)


def answer_on(llm: LLM, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Answered:
    """Answer ``prompts`` at once with whatever the drafter has learnt."""
    batch = _Batch(llm.engine, prompts, params)
    batch.run(math.inf)
    return batch.answered()


class _Batch:
    """Prompts that are answered at once, a while at a time; the clock runs in between only."""

    def __init__(self, engine: Engine, prompts: Sequence[Sequence[int]], params: SamplingParams) -> None:
        self._engine = engine
        self._names = [str(number) for number in range(len(prompts))]
        self._done: dict[str, CompletionOutput] = {}
        self._wanted = SETTLED * len(prompts)
        self._count = self._settled = 0
        self._seconds = self._settled_at = 0.0
        begin = time.perf_counter()
        for name, prompt in zip(self._names, prompts, strict=True):
            engine.add_request(name, prompt, params)
        self._seconds = time.perf_counter() - begin

    @property
    def is_done(self) -> bool:
        return not self._engine.has_unfinished

    def run(self, seconds: float) -> None:
        """Run steps for so long, or to the end."""
        begin, before = time.perf_counter(), self._seconds
        while not self.is_done and self._seconds - before < seconds:
            outputs = self._engine.step()
            self._seconds = before + time.perf_counter() - begin
            for output in outputs:
                self._count += len(output.token_ids)
                if output.completion is not None:
                    self._done[output.request_id] = output.completion
            if not self._settled_at and self._count >= self._wanted:
                self._settled_at, self._settled = self._seconds, self._count

    def answered(self) -> Answered:
        """Return what came of it, once it is done."""
        metrics = [self._done[name].metrics for name in self._names]
        late = self._seconds - self._settled_at
        return Answered(
            self._seconds,
            tuple(tuple(self._done[name].token_ids) for name in self._names),
            (self._count - self._settled) / late if self._settled_at and late else 0.0,
            sum(m.num_draft_tokens for m in metrics),
            sum(m.num_accepted_tokens for m in metrics),
            max(m.num_verify_steps for m in metrics),
        )


def plain_engine(llm: LLM) -> Engine:
    """Return an engine without drafts on the weights of ``llm``, with a cache of its own."""
    executor = llm.executor.first_layers(llm.executor.spec.num_layers, llm.executor.num_blocks)
    drafters = {PLAIN: NoneDrafter()}
    return Engine(
        executor,
        llm.tokenizer,
        llm.tokenizer.eos_token_ids,
        drafters.__getitem__,
        SpecConfig(PLAIN),
        llm.engine.config,
    )


def answer_in_turns(
    llm: LLM, plain: Engine, prompts: Sequence[Sequence[int]], case: Case, max_tokens: int
) -> tuple[Answered, Answered]:
    """Answer ``prompts`` without drafts and with those of the case, in turns; nothing is known beforehand."""
    llm.start_afresh()
    plain.clear_prefix_cache()
    llm.engine.drafter(case.drafter)
    gc.collect()
    sides = (
        _Batch(plain, prompts, _params(case, PLAIN, max_tokens)),
        _Batch(llm.engine, prompts, _params(case, case.drafter, max_tokens)),
    )
    while not all(side.is_done for side in sides):
        for side in sides:
            side.run(SLICE)
    return sides[0].answered(), sides[1].answered()


@dataclass(slots=True)
class CaseResult:
    """A case over its rounds. ``ratios``: time of the drafter ÷ time of ``none``. ``identical``: share of
    replies that are the same, ``None`` where each is drawn anew. ``late``: late speed ÷ that of ``none``.
    ``tokens_per_step``: of one request. ``warnings``: that a drafter costs more than it saves.
    """

    label: str
    batch: int
    ratios: list[float]
    identical: float | None
    late: list[float]
    tokens_per_step: float
    num_draft_tokens: int
    num_accepted_tokens: int
    warnings: int

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Warnings(logging.Handler):
    """Counts what the engine warns of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "costs more time than it saves" in record.getMessage()


def run_case(llm: LLM, case: Case, rounds: int) -> CaseResult:
    """Serve ``rounds`` batches of ``case`` by both sides."""
    plain, pairs = plain_engine(llm), []
    warnings, logger = Warnings(), logging.getLogger("paceline.engine")
    logger.addHandler(warnings)
    try:
        answer_in_turns(llm, plain, prompts_for(llm, case, rounds)[:1], case, 16)  # warm
        for number in range(rounds):
            prompts = prompts_for(llm, case, number)
            pairs.append(answer_in_turns(llm, plain, prompts, case, TOKENS[case.batch]))
    finally:
        logger.removeHandler(warnings)
    return _result(case, pairs, warnings.count)


def _params(case: Case, drafter: str, max_tokens: int) -> SamplingParams:
    return SamplingParams(
        temperature=case.temperature, max_tokens=max_tokens, drafter=drafter, ignore_eos=case.runs_on
    )


def _result(case: Case, pairs: Sequence[tuple[Answered, Answered]], warnings: int) -> CaseResult:
    same = [
        mine == theirs
        for plain, fast in pairs
        for mine, theirs in zip(fast.replies, plain.replies, strict=True)
    ]
    fast = [pair[1] for pair in pairs]
    steps = sum(run.num_steps for run in fast)
    return CaseResult(
        case.label,
        case.batch,
        [drafted.seconds / plain.seconds for plain, drafted in pairs],
        sum(same) / len(same) if case.temperature == 0.0 else None,
        [drafted.late_speed / plain.late_speed for plain, drafted in pairs if plain.late_speed],
        sum(run.num_tokens for run in fast) / case.batch / steps,
        sum(run.num_draft_tokens for run in fast),
        sum(run.num_accepted_tokens for run in fast),
        warnings if case.drafter == WRONG else 0,
    )
