"""Batches answered and timed, and the two sides of a case in turns."""

from __future__ import annotations

import gc
import logging
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from guard_cases import TOKENS, WRONG, Case, prompts_for

from paceline import LLM, SamplingParams

PLAIN = "none"
SETTLED = 64
"""Output tokens of a request after which a drafter that is always wrong must have been silenced."""


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
    engine, names = llm.engine, [str(number) for number in range(len(prompts))]
    done: dict[str, Any] = {}
    wanted, count, settled_at, settled = SETTLED * len(prompts), 0, 0.0, 0
    begin = now = time.perf_counter()
    for name, prompt in zip(names, prompts, strict=True):
        engine.add_request(name, prompt, params)
    while engine.has_unfinished:
        outputs = engine.step()
        now = time.perf_counter()
        for output in outputs:
            count += len(output.token_ids)
            if output.completion is not None:
                done[output.request_id] = output.completion
        if not settled_at and count >= wanted:
            settled_at, settled = now, count
    metrics = [done[name].metrics for name in names]
    late = (count - settled) / (now - settled_at) if settled_at and now > settled_at else 0.0
    return Answered(
        now - begin,
        tuple(tuple(done[name].token_ids) for name in names),
        late,
        sum(m.num_draft_tokens for m in metrics),
        sum(m.num_accepted_tokens for m in metrics),
        max(m.num_verify_steps for m in metrics),
    )


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
    """Serve ``rounds`` batches of ``case`` by each side; who comes first changes with each."""
    warnings, logger = Warnings(), logging.getLogger("paceline.engine")
    logger.addHandler(warnings)
    pairs = []
    try:
        for drafter in (PLAIN, case.drafter):  # warm
            answer(llm, prompts_for(llm, case, rounds)[:1], _params(case, drafter, 16))
        for number in range(rounds):
            prompts = prompts_for(llm, case, number)
            order = (PLAIN, case.drafter) if number % 2 == 0 else (case.drafter, PLAIN)
            runs = {name: answer(llm, prompts, _params(case, name, TOKENS[case.batch])) for name in order}
            pairs.append((runs[PLAIN], runs[case.drafter]))
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
