"""What a step of the engine takes by its rows: the forward where it runs in use, and the work around it.

A forward in a loop of its own finds its weights and activations warmer than one behind the engine's Python,
and each drafted row costs more than its forward: it is laid into the batch, judged and committed. So whole
steps are timed, of one greedy request whose drafts are right in their first half and wrong in the other.
Wider steps are timed among others, as in use; one-row steps in a run of their own, for that is what plain
decoding does. Behind wider steps they take up to 40 % longer where caches are shared with strangers, and a
curve relative to those promised 1.13 times plain speed where 0.93 came.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, cast

import numpy as np

from paceline.config import EngineConfig, SpecConfig
from paceline.drafters.base import Drafter, DrafterCapabilities, TokenSampler
from paceline.drafters.none import NoneDrafter
from paceline.drafters.scripted import ScriptedDrafter
from paceline.engine.engine import Engine
from paceline.engine.text import TokenDecoder
from paceline.executors.base import Executor, ForwardBatch
from paceline.profiling.timing import spread, typical
from paceline.records import Draft, FloatArray
from paceline.sampling.params import SamplingParams

_MOST_TURNS = 40
_LEAST_TURNS = 2
_FAR, _FAR_TURNS = 17, 3  # wider steps than this are timed in every third turn: they take half of its time
_SETTLING = 3  # steps of one row that still feel what was before them


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds by the rows of a step: of its forward, and of all else in it. Both have the same keys.

    ``spread``: how far forwards of one width lay apart, the median over widths (``timing.spread``).
    """

    forward: dict[int, float]
    outside: dict[int, float]
    spread: float


def tokens_written(rows: Sequence[int]) -> int:
    """Return how many tokens a turn writes, the one behind the prompt included."""
    return 1 + sum(1 + _right(m) for m in rows)


def measure_steps(
    executor: Executor,
    decoder: TokenDecoder,
    rows: Sequence[int],
    context: int,
    seconds: float,
    progress: Callable[[float], None] = lambda share: None,
) -> StepTimes:
    """Time steps with each of ``rows`` rows behind ``context`` tokens and more, about ``seconds`` long.

    A turn takes them in order, every second turn backwards. Where 1 comes several times, in a row, only the
    later ones count. Far widths come in every third turn. ``executor`` is used by nobody else and has room
    for ``context + tokens_written(rows) + max(rows)`` slots.
    """
    run = _Run(executor, decoder, rows, context)
    begin = time.perf_counter()
    near = tuple(m for m in rows if m <= _FAR)
    for turn in range(_MOST_TURNS):
        widths = near if turn % _FAR_TURNS else rows
        run.turn(widths if turn % 2 == 0 else widths[::-1])
        spent = time.perf_counter() - begin
        progress(min(1.0, max((turn + 1) / _MOST_TURNS, spent / seconds)))
        if spent >= seconds and turn + 1 >= _LEAST_TURNS:
            break
    return StepTimes(
        {m: typical([forward for forward, _ in times]) for m, times in run.times.items()},
        {m: typical([outside for _, outside in times]) for m, times in run.times.items()},
        median(spread([forward for forward, _ in times]) for times in run.times.values()),
    )


def _right(num_rows: int) -> int:
    """Return how many nodes of the draft of such a step are right: about as many as in use."""
    return (num_rows - 1) // 2


class _Run:
    """Requests that repeat one greedy reply, each time in steps of other widths."""

    def __init__(self, executor: Executor, decoder: TokenDecoder, rows: Sequence[int], context: int) -> None:
        self.times: dict[int, list[tuple[float, float]]] = {m: [] for m in rows}
        self._timed = _TimedExecutor(executor)
        room = min(executor.max_context, executor.num_blocks * executor.block_size)
        self._drafter = ScriptedDrafter(self._draft, DrafterCapabilities())
        drafters: dict[str, Drafter] = {"none": NoneDrafter(), "rows": self._drafter}
        timed = cast(Executor, self._timed)
        config = EngineConfig(room, max_draft_rows=max(rows))
        self._engine = Engine(timed, decoder, (), drafters.__getitem__, SpecConfig("none"), config)
        self._vocab_size = executor.vocab_size
        self._prompt: list[int] = np.random.default_rng(0).integers(0, self._vocab_size, context).tolist()
        self._drafting = SamplingParams(
            temperature=0,
            ignore_eos=True,
            max_tokens=room - context,
            drafter="rows",
            num_draft_tokens=max(rows) - 1,
        )
        self._reply: tuple[int, ...] = self._write(tokens_written(rows))

    def _write(self, length: int) -> tuple[int, ...]:
        """Return the greedy reply. It warms everything up, and the prompt stays in the prefix cache."""
        params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=length)
        self._engine.add_request("reply", self._prompt, params)
        ended = None
        while ended is None:
            ended = next((output.completion for output in self._engine.step()), None)
        return ended.token_ids

    def turn(self, widths: Sequence[int]) -> None:
        """Time steps of these widths, in order."""
        self._width = 1  # nothing is drafted behind the prompt
        settling = min(_SETTLING, widths.count(1) - 1)
        self._engine.add_request("steps", self._prompt, self._drafting)
        known = self._drafter.sessions["steps"].known
        while len(known) == len(self._prompt):
            self._engine.step()
        for self._width in widths:
            self._timed.seconds, begin = 0.0, time.perf_counter()
            self._engine.step()
            spent = time.perf_counter() - begin
            if self._width == 1 and settling > 0:
                settling -= 1
            else:
                self.times[self._width].append((self._timed.seconds, spent - self._timed.seconds))
        self._engine.abort("steps")

    def _draft(self, known: tuple[int, ...], budget: int, sampler: TokenSampler) -> Draft:
        """Return a chain for a step of the present width, right as far as ``_right`` says."""
        place = len(known) - len(self._prompt)
        right = self._reply[place : place + _right(self._width)]
        wrong = (self._reply[place + len(right)] + 1) % self._vocab_size
        return Draft.chain([*right, *[wrong] * (self._width - 1 - len(right))])


class _TimedExecutor:
    """An executor that counts the seconds of its forwards."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def forward(self, batch: ForwardBatch) -> FloatArray:
        begin = time.perf_counter()
        logits = self._executor.forward(batch)
        self.seconds += time.perf_counter() - begin
        return logits
