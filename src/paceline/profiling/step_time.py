"""The fixed time of a step: what the engine does around the forward."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from paceline.config import EngineConfig, SpecConfig
from paceline.drafters.none import NoneDrafter
from paceline.engine.engine import Engine
from paceline.engine.text import TokenDecoder
from paceline.executors.base import Executor, ForwardBatch
from paceline.profiling.timing import typical
from paceline.records import FloatArray, IntArray
from paceline.sampling.params import SamplingParams

_PROMPT = 8
_MOST_STEPS = 48
_LEAST_STEPS = 4


def measure_step(executor: Executor, decoder: TokenDecoder, row_seconds: float, seconds: float) -> float:
    """Return the seconds of a plain greedy step of one request outside the forward.

    Runs on the model itself: between two forwards that stream all weights through the caches, Python is
    slower than in a loop of its own. ``executor`` is used by nobody else.
    """
    steps = int(max(_LEAST_STEPS, min(_MOST_STEPS, seconds / (2 * row_seconds))))
    room = min(executor.max_context, executor.num_blocks * executor.block_size)
    steps = min(steps, room - _PROMPT - 1)
    if steps < 1:
        return 0.0
    timed = _TimedExecutor(executor)
    config = EngineConfig(room, enable_prefix_caching=False)
    engine = Engine(timed, decoder, (), lambda name: NoneDrafter(), SpecConfig("none"), config)
    prompt = np.random.default_rng(0).integers(0, executor.vocab_size, _PROMPT).tolist()
    engine.add_request("profile", prompt, SamplingParams(temperature=0, max_tokens=steps, ignore_eos=True))
    outside: list[float] = []
    while engine.has_unfinished:
        timed.seconds, begin = 0.0, time.perf_counter()
        engine.step()
        outside.append(time.perf_counter() - begin - timed.seconds)
    return typical(outside)


class _TimedExecutor:
    """An executor that counts the seconds of its forwards."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.seconds = 0.0

    @property
    def vocab_size(self) -> int:
        return self._executor.vocab_size

    @property
    def max_context(self) -> int:
        return self._executor.max_context

    @property
    def block_size(self) -> int:
        return self._executor.block_size

    @property
    def num_blocks(self) -> int:
        return self._executor.num_blocks

    def forward(self, batch: ForwardBatch) -> FloatArray:
        begin = time.perf_counter()
        logits = self._executor.forward(batch)
        self.seconds += time.perf_counter() - begin
        return logits

    def forward_with_states(
        self, batch: ForwardBatch, layers: Sequence[int]
    ) -> tuple[FloatArray, FloatArray]:
        begin = time.perf_counter()
        answer = self._executor.forward_with_states(batch, layers)
        self.seconds += time.perf_counter() - begin
        return answer

    def move_slots(self, source: IntArray, destination: IntArray) -> None:
        self._executor.move_slots(source, destination)

    def first_layers(self, num_layers: int, num_blocks: int) -> Executor:
        return self._executor.first_layers(num_layers, num_blocks)
