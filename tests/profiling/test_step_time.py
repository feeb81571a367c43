"""Whole steps: of the widths asked for, half of each draft right, their bookkeeping in the price of rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest

from paceline.errors import ConfigError
from paceline.executors.base import ForwardBatch
from paceline.profiling import verify_curve
from paceline.profiling.step_time import StepTimes, measure_steps, tokens_written
from paceline.records import FloatArray
from support.engines import LetterDecoder
from support.fake_executor import FakeExecutor

ROWS = (1, 2, 4, 7)


class Watched(FakeExecutor):
    """Keeps how many rows each forward had, and where its first one stood."""

    def __init__(self) -> None:
        super().__init__(vocab_size=12, spread=1.2)
        self.seen: list[tuple[int, int]] = []
        self.seconds: Callable[[list[int]], float] = lambda seen: 0.0

    def forward(self, batch: ForwardBatch) -> FloatArray:
        self.seen.append((len(batch.tokens), int(batch.prefix_lengths[0])))
        time.sleep(self.seconds([rows for rows, _ in self.seen]))
        return super().forward(batch)


def test_steps_have_the_widths_asked_for_and_half_of_each_draft_is_right() -> None:
    executor = Watched()
    times = measure_steps(executor, LetterDecoder(), ROWS, context=16, seconds=1e-6)
    assert set(times.forward) == set(times.outside) == set(ROWS)
    assert all(seconds > 0 for seconds in (*times.forward.values(), *times.outside.values()))
    # The reply was written once, then came two turns, the second one backwards.
    steps = executor.seen[tokens_written(ROWS) :]
    turns = [steps[1:5], steps[6:10]]
    assert [[width for width, _ in turn] for turn in turns] == [[1, 2, 4, 7], [7, 4, 2, 1]]
    moves = [[after[1] - before[1] for before, after in pairwise(turn)] for turn in turns]
    assert moves == [[1, 1, 2], [4, 2, 1]], (
        "of a draft of n nodes, (n + 1) // 2 tokens are kept with the final one"
    )


def test_plain_steps_are_timed_in_a_run_of_their_own() -> None:
    """Behind a wider step one of a single row took up to 40 % longer where caches are shared with strangers.

    As all of them were timed so, r(4) came out as 1.3 where it was 1.7, and ``auto`` lost 16 %.
    """
    executor = Watched()
    rows = (1, 1, 1, 1, 1, 1, 4)
    executor.seconds = lambda seen: 0.0 if seen[-4:] == [1, 1, 1, 1] else 0.01
    times = measure_steps(executor, LetterDecoder(), rows, context=16, seconds=1e-6)
    assert times.forward[1] < 0.005 < times.forward[4]
    executor = Watched()
    executor.seconds = lambda seen: 0.0 if seen[-2:] == [1, 1] else 0.01
    times = measure_steps(executor, LetterDecoder(), (4, 1), context=16, seconds=1e-6)
    assert times.forward[1] > 0.005, "a single one counts, whatever was before it"


def test_what_rows_cost_outside_the_forward_is_part_of_their_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predicted speed-ups were 6 to 15 % too high: the curve held nothing but forwards in a tight loop."""

    def steps(executor: object, decoder: object, rows: Sequence[int], *_: object) -> StepTimes:
        return StepTimes({m: 0.010 * m for m in rows}, {m: 0.002 + 0.001 * (m - 1) for m in rows}, 0.03)

    monkeypatch.setattr(verify_curve, "measure_steps", steps)
    found = verify_curve.measure_forward(
        FakeExecutor(num_blocks=75), LetterDecoder(), 300, 0.01, lambda share: None
    )
    assert found.row_seconds == pytest.approx(0.010)
    assert found.step_seconds == pytest.approx(0.002)
    assert dict(found.verify)[8] == pytest.approx(8.7)


def test_short_caches_get_fewer_widths_and_none_is_an_error() -> None:
    rows, context = verify_curve._affordable(1e-6, 1.0, 450)
    assert (rows[-1], context) == (64, 128)
    rows, context = verify_curve._affordable(1e-6, 1.0, 60)
    assert rows[-1] < 64
    assert context + tokens_written(rows) + max(rows) <= 60
    with pytest.raises(ConfigError, match="3 tokens is too small"):
        verify_curve._affordable(1e-6, 1.0, 3)


def test_slow_models_get_fewer_widths_and_a_short_prompt() -> None:
    assert verify_curve._affordable(0.5, 3.6, 300) == ((1, 4, 8), 16)
    assert np.isclose(tokens_written((1, 4, 8)), 8)
