"""Measuring drafters against plain decoding for a given time, in turns.

Each turn is one prompt, answered by ``none`` and by every drafter that is still in, in an order that rotates;
so a slow moment falls on all alike, and turns can be compared pair by pair. What is compared is time per
token behind the first one: the prompt costs the same whoever drafts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from paceline.control.acceptance_log import Tally
from paceline.control.drift import Baseline, measured_baseline
from paceline.sampling.params import SamplingParams

if TYPE_CHECKING:
    from paceline.llm import LLM

PLAIN = "none"
WARM_UP_TOKENS = 8
SCREEN_SHARE = 0.5
"""Share of the time after which drafters that are clearly behind drop out."""
BEHIND = 0.85
LEAST_TURNS = 3
WANTED_TURNS = 10
LEAST_TOKENS = 16
"""Of a reply, however slow the model is; shorter ones are mostly their beginning."""
_DRAWS = 2000
_LABEL = "advise"


@dataclass(frozen=True, slots=True)
class Entrant:
    """A drafter with a draft length. ``num_draft_tokens`` ``None``: the engine's default."""

    drafter: str
    num_draft_tokens: int | None = None

    def __str__(self) -> str:
        return self.drafter if self.num_draft_tokens is None else f"{self.drafter} k={self.num_draft_tokens}"


@dataclass(frozen=True, slots=True)
class Turn:
    """One reply. ``seconds``, ``tokens``: behind the first token. ``tally``: what its drafts showed.

    ``draft_seconds``: spent in the drafter, for the prompt too.
    """

    number: int
    seconds: float
    tokens: int
    num_steps: int
    num_drafts: int
    num_draft_tokens: int
    tally: Tally
    draft_seconds: float = 0.0


@dataclass(slots=True)
class Runs:
    """The turns of one entrant."""

    entrant: Entrant
    turns: list[Turn] = field(default_factory=list)

    @property
    def tokens_per_second(self) -> float:
        seconds = sum(turn.seconds for turn in self.turns)
        return sum(turn.tokens for turn in self.turns) / seconds if seconds else 0.0

    @property
    def tokens_per_step(self) -> float:
        steps = sum(turn.num_steps for turn in self.turns)
        return sum(turn.tokens for turn in self.turns) / steps if steps else 0.0

    @property
    def total(self) -> Tally:
        """What all drafts showed."""
        total = Tally()
        for turn in self.turns:
            merge(total, turn.tally)
        return total

    def baseline(self) -> Baseline | None:
        """Return the acceptance of these turns as a baseline for the drift watch; ``None`` without drafts."""
        total = self.total
        return measured_baseline(total, [turn.tally for turn in self.turns]) if total.num_positions else None


def merge(total: Tally, other: Tally) -> None:
    """Add the counts of ``other``."""
    for name in ("num_drafts", "num_draft_tokens", "num_tokens"):
        setattr(total, name, getattr(total, name) + getattr(other, name))
    for depth, (accepted, tried) in enumerate(zip(other.accepted_at, other.tried_at, strict=True)):
        if depth == len(total.tried_at):
            total.tried_at.append(0)
            total.accepted_at.append(0)
        total.accepted_at[depth] += accepted
        total.tried_at[depth] += tried


@dataclass(frozen=True, slots=True)
class MeasureSettings:
    """``seconds``: time to spend. ``max_tokens``: of a reply. ``temperature``: 0 is greedy; above it replies
    have seeds, so that all drafters face one noise.
    """

    seconds: float = 30.0
    max_tokens: int = 64
    temperature: float = 0.0


Progress = Callable[[float, str], None]
"""Told the share of the time that is gone, and who is running."""
Extra = Callable[[Sequence[Runs]], Sequence[Entrant]]
"""Names further entrants, half-way, from what was seen so far."""


def measure(
    llm: LLM,
    entrants: Sequence[Entrant],
    prompts: Sequence[Sequence[int]],
    settings: MeasureSettings,
    *,
    extra: Extra = lambda _runs: (),
    progress: Progress = lambda _share, _what: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Runs]:
    """Return the runs of ``none`` and of every entrant; prompts come again when there are too few.

    At least ``LEAST_TURNS`` turns are run whatever they take. Replies of slow models are shortened, see
    :func:`reply_length`. Loading drafters and warming up is not on the clock of ``settings.seconds``.
    """
    runs = {entrant: Runs(entrant) for entrant in (Entrant(PLAIN), *entrants)}
    pace = 0.0
    for entrant in runs:
        warm = _reply(llm, entrant, prompts[0], settings, 0, WARM_UP_TOKENS)
        pace = pace or warm.seconds / max(1, warm.tokens)
    length = reply_length(settings, pace, len(runs))
    alive, is_screened, number = list(runs), False, 0
    begin, paused = clock(), 0.0
    while number < LEAST_TURNS or clock() - begin - paused < settings.seconds:
        answered: set[str] = set()
        for entrant in _rotated(alive, number):
            # Copying drafters would find their own replies: of an earlier round, or of the same drafter with
            # another draft length, which shares its memory.
            if entrant.drafter in answered or (number and number % len(prompts) == 0 and not answered):
                paused += _forget(llm, alive, clock)
            answered.add(entrant.drafter)
            progress(min(1.0, (clock() - begin - paused) / settings.seconds), str(entrant))
            prompt = prompts[number % len(prompts)]
            runs[entrant].turns.append(_reply(llm, entrant, prompt, settings, number, length))
        number += 1
        if not is_screened and number >= LEAST_TURNS and _is_half_time(clock() - begin - paused, settings):
            is_screened = True
            alive = survivors(list(runs.values()))
            for entrant in extra(list(runs.values())):
                if entrant not in runs:
                    runs[entrant] = Runs(entrant)
                    alive.append(entrant)
    return list(runs.values())


def _forget(llm: LLM, entrants: Sequence[Entrant], clock: Callable[[], float]) -> float:
    """Empty the memories of all drafters; return the seconds it took."""
    at = clock()
    llm.start_afresh()
    for entrant in entrants:
        llm.engine.drafter(entrant.drafter)
    return clock() - at


def reply_length(settings: MeasureSettings, pace: float, num_entrants: int) -> int:
    """Return how long replies may be for ``WANTED_TURNS`` to fit the time: a few long ones tell less.

    ``pace``: seconds per token of plain decoding.
    """
    fitting = settings.seconds / (WANTED_TURNS * num_entrants * pace) if pace > 0.0 else settings.max_tokens
    return min(settings.max_tokens, max(LEAST_TOKENS, int(fitting)))


def _is_half_time(spent: float, settings: MeasureSettings) -> bool:
    return spent >= SCREEN_SHARE * settings.seconds


def _rotated(entrants: Sequence[Entrant], by: int) -> list[Entrant]:
    start = by % len(entrants)
    return [*entrants[start:], *entrants[:start]]


def _reply(
    llm: LLM,
    entrant: Entrant,
    prompt: Sequence[int],
    settings: MeasureSettings,
    number: int,
    max_tokens: int,
) -> Turn:
    is_sampled = settings.temperature > 0.0
    params = SamplingParams(
        temperature=settings.temperature,
        seed=number if is_sampled else None,
        max_tokens=max_tokens,
        drafter=entrant.drafter,
        num_draft_tokens=entrant.num_draft_tokens,
        workload=_LABEL,
    )
    total = llm.engine.watch.log.of(entrant.drafter, _LABEL).total
    before = (list(total.accepted_at), list(total.tried_at))
    (output,) = llm.generate([list(prompt)], params, use_tqdm=False)
    metrics = output.metrics
    return Turn(
        number,
        metrics.total_seconds - metrics.ttft_seconds,
        metrics.num_output_tokens - 1,
        metrics.num_verify_steps - 1,
        metrics.num_drafts,
        metrics.num_draft_tokens,
        Tally(
            metrics.num_drafts,
            metrics.num_draft_tokens,
            metrics.num_output_tokens,
            _gained(total.accepted_at, before[0]),
            _gained(total.tried_at, before[1]),
        ),
        metrics.draft_seconds,
    )


def _gained(now: Sequence[int], before: Sequence[int]) -> list[int]:
    return [count - (before[i] if i < len(before) else 0) for i, count in enumerate(now)]


def survivors(runs: Sequence[Runs]) -> list[Entrant]:
    """Return who goes on: ``none``, and those that are not clearly behind the fastest."""
    speeds = {run.entrant: speedup(run, runs[0]) for run in runs[1:]}
    best = max(speeds.values(), default=0.0)
    return [runs[0].entrant, *(entrant for entrant, speed in speeds.items() if speed >= BEHIND * best)]


# ---- comparing ----


def paired(run: Runs, plain: Runs) -> tuple[list[float], list[float]]:
    """Return seconds per token of both in the turns they have in common; replies of one token say nothing."""
    base = {turn.number: turn for turn in plain.turns if turn.tokens > 0}
    turns = [turn for turn in run.turns if turn.tokens > 0 and turn.number in base]
    mine = [turn.seconds / turn.tokens for turn in turns]
    theirs = [base[turn.number].seconds / base[turn.number].tokens for turn in turns]
    return mine, theirs


def speedup(run: Runs, plain: Runs) -> float:
    """Return time per token of plain decoding ÷ that of ``run``, over common turns; 0 without any."""
    mine, theirs = paired(run, plain)
    return sum(theirs) / sum(mine) if mine and sum(mine) > 0 else 0.0


def speedup_interval(run: Runs, plain: Runs) -> tuple[float, float] | None:
    """Return the 99 % interval of the speed-up by resampling turns; ``None`` with fewer than three.

    99: the fastest of half a dozen is looked at, so each gets a sixth of the doubt.
    """
    mine, theirs = (np.array(values) for values in paired(run, plain))
    if len(mine) < LEAST_TURNS:
        return None
    drawn = np.random.default_rng(0).integers(len(mine), size=(_DRAWS, len(mine)))
    ratios = theirs[drawn].sum(axis=1) / mine[drawn].sum(axis=1)
    low, high = np.quantile(ratios, (0.005, 0.995))
    return float(low), float(high)
