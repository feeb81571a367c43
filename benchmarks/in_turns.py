"""The sides of a comparison, answering at the same time in turns of a few steps each.

On a shared machine the clock rate and the caches are another's within a second. Whole replies in turns then
compare one mood with the next: two plain runs differed by 20 %. So all sides answer at once, with the same
weights and each from a key-value cache of its own, and take turns of ``SLICE`` seconds.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from paceline import LLM, SamplingParams
from paceline.config import SpecConfig
from paceline.control.draft_clock import DraftClock
from paceline.drafters.base import Drafter
from paceline.engine.engine import Engine
from paceline.engine.outputs import CompletionOutput

PLAIN = "none"
SETTLED = 64
"""Output tokens of a request after which a drafter that is always wrong must have been silenced."""
SLICE = 0.06
"""Seconds of a turn: some twenty steps, so that what the other side has left behind counts little."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One batch. ``seconds``: in which it was worked on. ``late_speed``: tokens per second once each request
    had ``SETTLED`` tokens on average, 0 when they never had.
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


class Batch:
    """Prompts that are answered at once, a while at a time; the clock runs in between only."""

    def __init__(self, engine: Engine, prompts: Sequence[Sequence[int]], params: SamplingParams) -> None:
        self._engine = engine
        self._names = [str(number) for number in range(len(prompts))]
        self._done: dict[str, CompletionOutput] = {}
        self._wanted = SETTLED * len(prompts)
        self._count = self._settled = 0
        self._settled_at = 0.0
        begin = time.perf_counter()
        for name, prompt in zip(self._names, prompts, strict=True):
            engine.add_request(name, prompt, params)
        self._seconds = time.perf_counter() - begin

    @property
    def is_done(self) -> bool:
        return not self._engine.has_unfinished

    def run(self, seconds: float = math.inf) -> None:
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


def engine_beside(llm: LLM, drafter: str) -> Engine:
    """Return an engine on the weights of ``llm`` with a cache and a ``drafter`` of its own."""
    executor = llm.executor.first_layers(llm.executor.spec.num_layers, llm.executor.num_blocks)

    def build(name: str) -> Drafter:
        llm.start_afresh()
        return llm.engine.drafter(name)

    engine = Engine(
        executor,
        llm.tokenizer,
        llm.tokenizer.eos_token_ids,
        build,
        SpecConfig(drafter, guard=llm.engine.spec.guard),
        llm.engine.config,
    )
    start_afresh(engine)
    engine.costs = llm.engine.costs  # measured, at the latest, when the drafter was built
    if llm.engine.draft_clock is not None:
        engine.draft_clock = DraftClock()
    return engine


def start_afresh(engine: Engine) -> None:
    """Let the drafter of such an engine know nothing, and its cache hold nothing."""
    engine.forget_drafters()
    engine.clear_prefix_cache()
    engine.drafter(engine.spec.drafter)


def answer_in_turns(
    engines: Sequence[Engine], prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]
) -> list[Answered]:
    """Answer ``prompts`` at once by each engine, with its ``params``."""
    gc.collect()
    sides = [Batch(engine, prompts, own) for engine, own in zip(engines, params, strict=True)]
    while not all(side.is_done for side in sides):
        for side in sides:
            side.run(SLICE)
    return [side.answered() for side in sides]
