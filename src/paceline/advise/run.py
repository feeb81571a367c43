"""From a model to an :class:`~paceline.advise.advice.Advice`: look, measure, predict, choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paceline.advise.advice import Advice, choose, findings_of
from paceline.advise.candidates import Candidate
from paceline.advise.measure import Entrant, MeasureSettings, Progress, Runs, measure, speedup
from paceline.advise.predict import predict
from paceline.config import DEFAULT_NUM_DRAFT_TOKENS
from paceline.errors import ConfigError, PacelineError

if TYPE_CHECKING:
    from paceline.bench.datasets import BenchPrompt
    from paceline.llm import LLM
    from paceline.theory.cost_table import CostTable


def first_turns(llm: LLM, prompts: Sequence[BenchPrompt]) -> list[list[int]]:
    """Return the first turn of each prompt as token ids, the workloads taking turns.

    Few prompts are measured in a short time, and they should hold something of every workload.
    """
    from paceline.bench.datasets import taking_turns
    from paceline.bench.llm_engine import prompt_ids

    room = llm.engine.config.max_model_len
    ids = [prompt_ids(llm, prompt.messages([])) for prompt in taking_turns(prompts)]
    fitting = [tokens for tokens in ids if len(tokens) + 2 <= room]
    if not fitting:
        raise ConfigError(f"no prompt fits max_model_len={room}: give shorter ones, or raise --context")
    return fitting


def open_all(llm: LLM, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Build every drafter that is to be measured; one that cannot be built is one that does not fit."""
    checked = []
    for candidate in candidates:
        if candidate.is_measured:
            try:
                llm.engine.drafter(candidate.drafter)
            except (PacelineError, OSError) as error:
                candidate = replace(candidate, fits=False, is_measured=False, about=str(error))
        checked.append(candidate)
    return checked


def advise(
    llm: LLM,
    candidates: Sequence[Candidate],
    prompts: Sequence[Sequence[int]],
    settings: MeasureSettings,
    table: CostTable | None,
    *,
    model: str,
    machine: str,
    progress: Progress = lambda _share, _what: None,
) -> Advice:
    """Measure the candidates that are worth it and choose. ``candidates``: see :func:`open_all`."""
    entrants = [Entrant(candidate.drafter) for candidate in candidates if candidate.is_measured]
    runs = measure(
        llm,
        entrants,
        prompts,
        settings,
        extra=lambda seen: _better_length(seen, table),
        progress=progress,
    )
    findings = findings_of(runs, table)
    chosen, reason = choose(findings)
    return Advice(
        model, machine, chosen, reason, runs[0].tokens_per_second, tuple(candidates), tuple(findings)
    )


def _better_length(runs: Sequence[Runs], table: CostTable | None) -> list[Entrant]:
    """Return the fastest drafter of one kind with the draft length that the cost table gives it, if another.

    ``auto`` is left as it is: it chooses its lengths itself.
    """
    if table is None:
        return []
    single = [run for run in runs[1:] if run.entrant.drafter != "auto"]
    if not single:
        return []
    best = max(single, key=lambda run: speedup(run, runs[0]))
    prediction = predict(best, table)
    if prediction is None or prediction.best_chain in (0, DEFAULT_NUM_DRAFT_TOKENS):
        return []
    return [Entrant(best.entrant.drafter, prediction.best_chain)]
