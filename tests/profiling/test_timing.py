"""Timing among noise."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.profiling.timing import interleaved, rising, spread, typical


def test_jobs_take_turns_in_both_directions() -> None:
    ran: list[str] = []
    jobs = {"a": lambda: ran.append("a"), "b": lambda: ran.append("b")}
    times = interleaved(jobs, 3, before=lambda: ran.append("-"))
    assert "".join(ran) == "-a-b-b-a-a-b"
    assert {name: len(values) for name, values in times.items()} == {"a": 3, "b": 3}


def test_the_time_is_kept_and_what_runs_before_is_not_counted() -> None:
    shares: list[float] = []
    jobs = {"quick": lambda: None}
    times = interleaved(jobs, 1000, 0.02, shares.append, before=lambda: time.sleep(0.005))["quick"]
    assert 1 <= len(times) <= 5
    assert typical(times) < 0.005
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_one_turn_runs_however_long_it_takes() -> None:
    assert len(interleaved({"slow": lambda: time.sleep(0.01)}, 9, 0.0001)["slow"]) == 1


def test_a_disturbed_minority_of_runs_does_not_count() -> None:
    assert typical([1.0, 1.0, 1.1, 9.0, 9.0]) == pytest.approx(1.0)


def test_the_spread_tells_a_busy_machine_from_one_bad_run() -> None:
    assert spread([1.0] * 9 + [30.0]) == pytest.approx(0.0)
    assert spread([1.0, 1.0, 1.6, 1.7, 1.8, 2.0]) > 0.6
    assert spread([2.0]) == 0.0


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=7))
def test_the_rising_curve_is_the_closest_one(values: list[float]) -> None:
    """Checked by what defines it: it rises, and no rising sequence out of random ones is closer."""
    found = rising(values)
    assert all(low <= high for low, high in itertools.pairwise(found))
    distance = float(np.sum((np.array(found) - values) ** 2))
    rng = np.random.default_rng(len(values))
    for _ in range(50):
        other = np.maximum.accumulate(np.array(found) + rng.normal(0, 0.05, len(found)))
        assert float(np.sum((other - values) ** 2)) >= distance - 1e-9


def test_noise_never_promises_free_rows() -> None:
    """Two rows that happened to be measured faster than one: both count as the mean, so r(2) is 1."""
    assert rising([3.0, 2.0, 4.0]) == [2.5, 2.5, 4.0]
    assert rising([1.0, 2.0, 3.0]) == [1.0, 2.0, 3.0]
