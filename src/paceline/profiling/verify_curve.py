"""r(M): the time of a forward by its rows, and what a long context adds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paceline.executors.base import Executor, ForwardBatch
from paceline.profiling.timing import interleaved, rising, typical
from paceline.theory.cost_table import MEASURED_ROWS

CONTEXT = 128
LONG_CONTEXT = 1024
_LONG_ROWS = (1, 8)
_TURNS = 40
_LEAST_TURNS = 4
_FILLED = 16
# Fewer row counts for slower models: a curve of few points, each measured several times, beats many points of
# chance. r is linear between them.
_ROW_SETS = (MEASURED_ROWS, (1, 2, 3, 4, 6, 8, 12, 16, 32), (1, 2, 4, 8, 16), (1, 4, 8))

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class ForwardCosts:
    """The forward's part of a :class:`~paceline.theory.cost_table.CostTable`, fields as there.

    ``turns``: how often each was measured.
    """

    verify: tuple[tuple[int, float], ...]
    row_seconds: float
    context: int
    per_sequence_token: float
    per_row_token: float
    turns: int


def slots_wanted(max_context: int, token_bytes: int, memory: int) -> int:
    """Return the slots of the cache to measure in: as many as ``memory`` bytes hold, up to the long context.

    Never fewer than the widest forward behind the usual context needs, as far as the model reaches.
    """
    least = min(CONTEXT + MEASURED_ROWS[-1], max_context)
    most = min(LONG_CONTEXT + _LONG_ROWS[-1], max_context)
    return max(least, min(most, memory // max(1, token_bytes)))


def measure_forward(executor: Executor, slots: int, seconds: float, progress: Progress) -> ForwardCosts:
    """Measure forwards of an executor that nothing else uses, whose cache has ``slots`` slots.

    Takes about ``seconds``; a model so slow that one turn takes longer gets one turn of few widths.
    """
    blocks = range(-(-slots // executor.block_size))
    tokens = np.random.default_rng(0).integers(0, executor.vocab_size, slots, dtype=np.int32)
    _fill(executor, tokens, slots)
    context = max(0, min(CONTEXT, slots - MEASURED_ROWS[-1]))
    far = slots - _LONG_ROWS[-1]
    one = _chain(tokens, 1, context, blocks)
    executor.forward(one)
    begin = time.perf_counter()
    executor.forward(one)
    rows = _affordable(time.perf_counter() - begin, seconds, slots - context)
    jobs = {(m, context): _chain(tokens, m, context, blocks) for m in rows}
    if far >= 2 * CONTEXT:
        jobs.update({(m, far): _chain(tokens, m, far, blocks) for m in _LONG_ROWS})
    times = interleaved(
        {key: _runner(executor, batch) for key, batch in jobs.items()}, _TURNS, seconds, progress
    )
    found = {key: typical(values) for key, values in times.items()}
    curve = rising([found[m, context] for m in rows])
    sequence, row = _long_context(found, context, far)
    return ForwardCosts(
        verify=tuple((m, value / curve[0]) for m, value in zip(rows, curve, strict=True)),
        row_seconds=curve[0],
        context=context,
        per_sequence_token=sequence / curve[0],
        per_row_token=row / curve[0],
        turns=len(times[1, context]),
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


def _affordable(one_row: float, seconds: float, most: int) -> tuple[int, ...]:
    """Return the first set of row counts of which a few turns fit into ``seconds``."""
    sets = [tuple(m for m in rows if m <= most) for rows in _ROW_SETS]
    for rows in sets:
        # On the processor r(M) stays below 1 + M / 5 or so; it only decides how much is measured.
        turn = one_row * sum(1 + m / 5 for m in rows)
        if _LEAST_TURNS * turn <= seconds:
            return rows
    return sets[-1]


def _long_context(found: dict[tuple[int, int], float], near: int, far: int) -> tuple[float, float]:
    """Return the seconds that a token of cache adds per sequence and per row: two unknowns, two slopes."""
    few, many = _LONG_ROWS
    if not {(few, far), (many, far), (few, near), (many, near)} <= set(found):
        return 0.0, 0.0
    slope = {m: max(0.0, (found[m, far] - found[m, near]) / (far - near)) for m in _LONG_ROWS}
    row = max(0.0, (slope[many] - slope[few]) / (many - few))
    return max(0.0, slope[few] - few * row), row
