"""What a first use of a model keeps people waiting for: under ten seconds, and never in silence."""

from __future__ import annotations

import logging
import sys
import time

import numpy as np
import pytest

from paceline.drafters.registry import build_drafter
from paceline.executors.base import ForwardBatch
from paceline.profiling import costs
from paceline.profiling.drafting import BUDGET, measure_cheap
from paceline.profiling.progress import giving_way, measuring
from paceline.profiling.store import BUSY_SPREAD
from paceline.profiling.verify_curve import measure_forward, slots_wanted
from paceline.records import FloatArray
from support.engines import LetterDecoder
from support.fake_executor import FakeExecutor


class Paced(FakeExecutor):
    """Takes ``row_seconds`` for a row, and a fifth of it for each one more, on a clock of its own."""

    row_seconds = 0.0
    now = 0.0

    def forward(self, batch: ForwardBatch) -> FloatArray:
        self.now += self.row_seconds * (1.0 + (len(batch.tokens) - 1) / 5)
        return np.zeros((len(batch.logit_rows), self.vocab_size), np.float32)

    def move_slots(self, source: object, destination: object) -> None:
        """Nothing is kept."""


@pytest.mark.parametrize("row_seconds", [0.003, 0.03, 0.1])
def test_measuring_takes_less_than_ten_seconds(row_seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = slots_wanted(8192, 1, 1 << 20)
    executor = Paced(vocab_size=64, num_blocks=-(-slots // 4))
    executor.row_seconds = row_seconds
    monkeypatch.setattr(time, "perf_counter", lambda: executor.now)
    shares: list[float] = []
    found = measure_forward(executor, LetterDecoder(), slots, costs._FORWARD_SECONDS, shares.append)
    assert found.row_seconds == pytest.approx(row_seconds)
    assert dict(found.verify)[8] == pytest.approx(1 + 7 / 5)
    assert shares == sorted(shares) and shares[-1] == 1.0

    def row() -> FloatArray:
        executor.now += row_seconds
        return np.zeros((1, executor.vocab_size), np.float32)

    for name in costs.CHEAP:
        drafter = build_drafter(name, target=executor, target_vocabulary=(), num_draft_tokens=BUDGET)
        measure_cheap(drafter, executor.vocab_size, row, costs._CHEAP_SECONDS)
    assert executor.now + costs._PART_SECONDS < 10.0


def test_a_terminal_shows_a_bar_and_a_file_gets_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "paceline.profiling"), measuring("tiny") as progress:
        progress(0.5)
    assert [record.getMessage() for record in caplog.records] == [
        "measuring what tiny costs here (once; about 10 s)"
    ]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    stopped: list[bool] = []
    with giving_way(lambda: stopped.append(True)), measuring("tiny") as progress:
        progress(0.5)
    assert stopped == [True], "two live displays would write over each other"
    assert "measuring what tiny costs here (once)" in capsys.readouterr().err


class Disturbed(Paced):
    """Three forwards of five take up to twice as long: other programs want the processor too."""

    def __init__(self, **shape: int) -> None:
        super().__init__(**shape)
        self._rng = np.random.default_rng(0)

    def forward(self, batch: ForwardBatch) -> FloatArray:
        begin = self.now
        logits = super().forward(batch)
        self.now += (self.now - begin) * max(0.0, self._rng.uniform(-2 / 3, 1))
        return logits


def test_a_disturbed_measurement_is_seen_and_does_little_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Profiles with r(2) = 1.31 and a row twice as dear were kept; nothing said that it was noise."""
    spreads = []
    for kind in (Paced, Disturbed):
        executor = kind(vocab_size=64, num_blocks=75)
        executor.row_seconds = 0.003
        monkeypatch.setattr(time, "perf_counter", lambda executor=executor: executor.now)
        found = measure_forward(executor, LetterDecoder(), 300, costs._FORWARD_SECONDS, lambda share: None)
        assert found.row_seconds == pytest.approx(0.003, rel=0.05)
        assert dict(found.verify)[2] == pytest.approx(1.2, rel=0.05)
        assert dict(found.verify)[8] == pytest.approx(2.4, rel=0.05)
        spreads.append(found.spread)
    assert spreads[0] == pytest.approx(0.0, abs=1e-6)
    assert spreads[1] > BUSY_SPREAD
