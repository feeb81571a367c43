"""The two sides of a case in turns, and what came of it."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from guard_cases import TOKENS, WRONG, Case, prompts_for
from in_turns import PLAIN, Answered, answer_in_turns, engine_beside, start_afresh

from paceline import LLM, SamplingParams
from paceline.engine.engine import Engine


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
    """Serve ``rounds`` batches of ``case`` by both sides; the drafter knows nothing when one begins."""
    engines = [engine_beside(llm, name) for name in (PLAIN, case.drafter)]
    warnings, logger = Warnings(), logging.getLogger("paceline.engine")
    logger.addHandler(warnings)
    try:
        _serve(engines, case, prompts_for(llm, case, rounds)[:1], 16)  # warm
        pairs = [
            _serve(engines, case, prompts_for(llm, case, number), TOKENS[case.batch])
            for number in range(rounds)
        ]
    finally:
        logger.removeHandler(warnings)
    return _result(case, pairs, warnings.count)


def _serve(
    engines: Sequence[Engine], case: Case, prompts: Sequence[Sequence[int]], max_tokens: int
) -> tuple[Answered, Answered]:
    """Return what came of one batch without drafts and with those of the case."""
    for engine in engines:
        start_afresh(engine)
    params = [
        SamplingParams(
            temperature=case.temperature,
            max_tokens=max_tokens,
            drafter=engine.spec.drafter,
            ignore_eos=case.runs_on,
        )
        for engine in engines
    ]
    plain, drafted = answer_in_turns(engines, prompts, params)
    return plain, drafted


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
