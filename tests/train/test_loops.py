"""Loops are cut where they begin to repeat; texts that only resemble themselves stay."""

from __future__ import annotations

import random

import pytest

from paceline.train.loops import MIN_REPEATED, LoopCounts, least_distinct_share, second_cycle, without_loops
from paceline.train.rows import Row


def row(response: list[int]) -> Row:
    return Row("r", "s", (1,), tuple(response), 0.0)


@pytest.mark.parametrize("period", [1, 2, 7, 40, 96])
def test_the_first_round_stays(period: int) -> None:
    rng = random.Random(period)
    start, cycle = rng.sample(range(1000), 30), rng.sample(range(1000, 2000), period)
    text = start + cycle * (2 + -(-MIN_REPEATED // period))
    end = second_cycle(text)
    assert end == 30 + period
    assert text[:end] == start + cycle


@pytest.mark.parametrize("rounds", [1, 2])
def test_saying_something_twice_is_no_loop(rounds: int) -> None:
    text = list(range(100)) + list(range(200, 240)) * rounds + list(range(300, 350))
    assert second_cycle(text) is None


def test_short_repeats_are_no_loop() -> None:
    """A ruler in a table, ``-- -- -- --``, is text."""
    assert second_cycle([1, 2, 3] + [5, 6] * 8 + [4] * 5) is None


def test_the_earliest_loop_counts() -> None:
    text = list(range(10)) + [50, 51, 52] * 12 + list(range(60, 70)) + [80] * 60
    assert second_cycle(text) == 13


def test_loops_with_variations_are_dropped() -> None:
    """``Step 1: do it. Step 2: do it.`` never repeats a cycle, and is one."""
    body = list(range(100, 120))
    looping = [token for number in range(12) for token in (*body, number)]
    counts = LoopCounts()
    assert list(without_loops([row(looping)], counts)) == []
    assert (counts.num_rows, counts.num_dropped, counts.num_tokens_left_out) == (1, 1, len(looping))


def test_counts_add_up() -> None:
    varied = list(range(200))
    looped = list(range(50)) + [7, 8, 9] * 30
    early = [1, 2, 3] * 30
    counts = LoopCounts()
    kept = list(without_loops([row(varied), row(looped), row(early)], counts))
    assert [len(r.response) for r in kept] == [200, 53]
    assert (counts.num_rows, counts.num_cut, counts.num_dropped) == (3, 1, 1)
    assert counts.num_tokens == 253
    assert counts.num_tokens + counts.num_tokens_left_out == 200 + 140 + 90


def test_share_of_distinct_four_grams() -> None:
    assert least_distinct_share(list(range(500))) == 1.0
    assert least_distinct_share([1, 2] * 10) == 1.0, "shorter than a window"
    assert least_distinct_share(list(range(300)) + [1, 2] * 100) == pytest.approx(2 / 125)
