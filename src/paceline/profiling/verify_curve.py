"""r(M): the time of a step by its rows, and what a long context adds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.engine.text import TokenDecoder
from paceline.errors import ConfigError
from paceline.executors.base import Executor, ForwardBatch
from paceline.profiling.step_time import measure_steps, tokens_written
from paceline.profiling.timing import interleaved, rising, typical
from paceline.theory.cost_table import MEASURED_ROWS

CONTEXT = 128
_SHORT_CONTEXT = 16
LONG_CONTEXT = 1024
_LONG_ROWS = (1, 8)
_LONG_SHARE = 0.2
"""Share of the time for what a long context adds."""
_TURNS = 40
_LEAST_TURNS = 4
_FILLED = 16
# Fewer row counts for slower models: a curve of few points, each measured several times, beats many points of
# chance. r is linear between them, so both sides of the kernels' steps (see MEASURED_ROWS) belong in it: on
# a slow day the curve ended at 32, and drafts of 32 requests were weighed by a third of what they cost.
_RUN = (1,) * 5  # of one-row steps, before another one
_ROW_SETS = (
    (*_RUN, *MEASURED_ROWS),
    (*_RUN, 1, 2, 3, 4, 6, 8, 12, 16, 17, 32, 33, 48),
    (1, 2, 4, 8, 16),
    (1, 4, 8),
)

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class ForwardCosts:
    """What a :class:`~paceline.theory.cost_table.CostTable` holds besides drafters; fields as there.

    ``spread``: see :class:`~paceline.profiling.step_time.StepTimes`.
    """

    verify: tuple[tuple[int, float], ...]
    row_seconds: float
    step_seconds: float
    context: int
    per_sequence_token: float
    per_row_token: float
    spread: float


def slots_wanted(max_context: int, token_bytes: int, memory: int) -> int:
    """Return the slots of the cache to measure in: as many as ``memory`` bytes hold, up to the long context.

    Never fewer than all widths behind the usual context need, as far as the model reaches.
    """
    least = min(CONTEXT + _room(MEASURED_ROWS), max_context)
    most = min(LONG_CONTEXT + _LONG_ROWS[-1], max_context)
    return max(least, min(most, memory // max(1, token_bytes)))


def _room(rows: Sequence[int]) -> int:
    """Return the slots behind the prompt in which steps of these widths are measured."""
    return tokens_written(rows) + max(rows)


def measure_forward(
    executor: Executor, decoder: TokenDecoder, slots: int, seconds: float, progress: Progress
) -> ForwardCosts:
    """Measure steps on an executor that nothing else uses, whose cache has ``slots`` slots.

    Takes about ``seconds``; a model so slow that one turn takes longer gets few turns of few widths. Raises
    ``ConfigError`` when the slots do not even hold steps of one row.
    """
    tokens = np.random.default_rng(0).integers(0, executor.vocab_size, slots, dtype=np.int32)
    one_row, sequence, row = _long_context(executor, tokens, _LONG_SHARE * seconds)
    rest = (1.0 - _LONG_SHARE) * seconds
    steps, context = _affordable(one_row, rest, slots)
    times = measure_steps(executor, decoder, steps, context, rest, progress)
    rows = sorted(times.forward)
    step = times.outside[1]
    # What a step takes longer with more rows, outside its forward too, is the price of these rows.
    curve = rising([times.forward[m] + times.outside[m] - step for m in rows])
    return ForwardCosts(
        tuple((m, value / curve[0]) for m, value in zip(rows, curve, strict=True)),
        curve[0],
        step,
        context,
        sequence / curve[0],
        row / curve[0],
        times.spread,
    )


def _fill(executor: Executor, tokens: np.ndarray[tuple[int], np.dtype[np.int32]], slots: int) -> None:
    """Put keys and values into all slots; copies do, as what they hold takes no different time."""
    filled = min(_FILLED, slots)
    executor.forward(_chain(tokens, filled, 0, range(executor.num_blocks)))
    rest = np.arange(filled, slots, dtype=np.int32)
    executor.move_slots(rest % np.int32(filled), rest)


def _chain(
    tokens: np.ndarray[tuple[int], np.dtype[np.int32]], rows: int, start: int, blocks: range
) -> ForwardBatch:
    return ForwardBatch.chain(tokens[start : start + rows], start, blocks, rows)


def _runner(executor: Executor, batch: ForwardBatch) -> Callable[[], object]:
    return lambda: executor.forward(batch)


def _affordable(one_row: float, seconds: float, slots: int) -> tuple[tuple[int, ...], int]:
    """Return the first set of steps of which a few turns fit into ``seconds``, and the context to use.

    On the processor r(M) stays below 1 + M / 5 or so; it only decides how much is measured.
    """
    wanted = CONTEXT if one_row * (1 + CONTEXT / 5) <= seconds / 4 else _SHORT_CONTEXT
    for rows in _ROW_SETS:
        turn = one_row * sum(1 + m / 5 for m in rows)
        if _LEAST_TURNS * turn + one_row * tokens_written(rows) <= seconds:
            break
    while _room(rows) >= slots:
        rows = rows[:-1]
        if not rows:
            raise ConfigError(f"a cache of {slots} tokens is too small to measure in")
    return rows, min(wanted, slots - _room(rows))


def _long_context(
    executor: Executor, tokens: np.ndarray[tuple[int], np.dtype[np.int32]], seconds: float
) -> tuple[float, float, float]:
    """Return the seconds of a forward with one row, and those that a token of cache adds to it.

    The latter per sequence and per row: two unknowns, two slopes. Both 0 where no long context fits.
    """
    slots = len(tokens)
    blocks = range(-(-slots // executor.block_size))
    _fill(executor, tokens, slots)
    one = _chain(tokens, 1, 0, blocks)
    executor.forward(one)
    begin = time.perf_counter()
    executor.forward(one)
    one_row = time.perf_counter() - begin
    few, many = _LONG_ROWS
    near, far = CONTEXT, slots - many
    if far < 2 * near:
        return one_row, 0.0, 0.0
    jobs = {
        (m, place): _runner(executor, _chain(tokens, m, place, blocks))
        for m in _LONG_ROWS
        for place in (near, far)
    }
    found = {key: typical(values) for key, values in interleaved(jobs, _TURNS, seconds).items()}
    slope = {m: max(0.0, (found[m, far] - found[m, near]) / (far - near)) for m in _LONG_ROWS}
    row = max(0.0, (slope[many] - slope[few]) / (many - few))
    return found[few, near], max(0.0, slope[few] - few * row), row
