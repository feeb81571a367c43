"""Timing on a machine that does other things too."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

Key = TypeVar("Key")

# Noise only ever adds time. The lowest tenth sits near the undisturbed time even where most runs were
# disturbed, and of many runs it does not hang on one lucky one, as a minimum would.
_QUANTILE = 0.1
_SLOW_QUANTILE = 0.75


def interleaved(
    jobs: Mapping[Key, Callable[[], object]],
    turns: int,
    seconds: float = math.inf,
    progress: Callable[[float], None] = lambda share: None,
    before: Callable[[], object] = lambda: None,
) -> dict[Key, list[float]]:
    """Return the seconds of each run of each job; every job runs once per turn.

    Taking turns makes drifts hit all alike, and every second turn goes backwards, so that none always runs
    behind the same neighbour. Ends after ``turns``, or behind the first turn that ends ``seconds`` after the
    start. ``progress`` is told the share done. ``before`` runs before each job and is not counted: what runs
    beside a target's forwards finds its own weights gone from the caches.
    """
    times: dict[Key, list[float]] = {key: [] for key in jobs}
    order, start = list(jobs), time.perf_counter()
    for turn in range(turns):
        for key in order if turn % 2 == 0 else reversed(order):
            before()
            begin = time.perf_counter()
            jobs[key]()
            times[key].append(time.perf_counter() - begin)
        spent = time.perf_counter() - start
        progress(min(1.0, max((turn + 1) / turns, spent / seconds)))
        if spent >= seconds:
            break
    return times


def typical(seconds: Sequence[float]) -> float:
    """Return the time of an undisturbed run: the lowest tenth of some runs."""
    return float(np.quantile(seconds, _QUANTILE))


def spread(seconds: Sequence[float]) -> float:
    """Return how much longer than the lowest tenth the upper quartile of some runs takes, as its share."""
    return float(np.quantile(seconds, _SLOW_QUANTILE)) / typical(seconds) - 1.0


def rising(values: Sequence[float]) -> list[float]:
    """Return the closest never falling sequence, least squares (pool adjacent violators).

    A forward with more rows does not take less time; where a measurement says so it was noise, and a curve
    that falls would promise rows for less than nothing. Source: Ayer et al. 1955.
    """
    pools: list[tuple[float, int]] = []  # mean and size
    for value in values:
        mean, size = value, 1
        while pools and pools[-1][0] >= mean:
            above, count = pools.pop()
            mean = (mean * size + above * count) / (size + count)
            size += count
        pools.append((mean, size))
    return [mean for mean, size in pools for _ in range(size)]
