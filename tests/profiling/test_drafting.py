"""What drafting is measured to cost: Python included, drafts right in part, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from paceline.drafters.eagle3 import Eagle3Head, Eagle3Options
from paceline.drafters.registry import build_drafter
from paceline.kv.block_pool import BlockPool
from paceline.profiling import drafting
from paceline.profiling.drafting import BUDGET, measure_cheap, measure_head
from paceline.records import FloatArray, StepObservation
from support.fake_executor import FakeExecutor
from support.fake_head import FakeHead, all_ids

TARGET = FakeExecutor(vocab_size=64, state_size=64)


def row() -> FloatArray:
    return np.zeros((1, TARGET.vocab_size), np.float32)


def head(num_blocks: int) -> Eagle3Head:
    fake = FakeHead(TARGET, all_ids(TARGET), num_blocks=num_blocks)
    return Eagle3Head("fake", fake, BlockPool(num_blocks))  # type: ignore[arg-type]


def test_the_fixed_cost_of_a_head_is_that_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the native call was measured: of 0.6 ms that a SmolLM2 draft of one level takes, 0.35."""
    known = {"catch-up": 0.1, "one level": 0.2, "chain": 0.8, "tree": 0.9, "session": 0.5}

    def timed(jobs: Mapping[str, Callable[[], object]], *_: object, **__: object) -> dict[str, list[float]]:
        for job in jobs.values():
            job()
        return {name: [known[name]] for name in jobs}

    monkeypatch.setattr(drafting, "interleaved", timed)
    times = measure_head(head(200), Eagle3Options(), row, 1.0)
    assert times is not None
    assert times.per_level == pytest.approx(0.1)  # six levels more take 0.6
    assert times.fixed == pytest.approx(0.4)


def test_the_session_drafts_at_every_turn_and_gives_its_blocks_back() -> None:
    found = head(200)
    times = measure_head(found, Eagle3Options(), row, 0.01)
    assert times is not None and times.fixed > 0
    found.prefix.clear()
    assert found.pool.num_free == 200
    assert measure_head(head(20), Eagle3Options(), row, 0.01) is None, (
        "a full cache is no place to measure in"
    )


@pytest.mark.parametrize("name", ["suffix", "recycle", "auto"])
def test_cheap_drafters_are_measured_on_drafts_that_are_right_in_part(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that only repeated made every draft whole and right, and asking auto half as dear again."""
    seen: list[StepObservation] = []
    observation = drafting._observation

    def watched(*told: Any) -> StepObservation:
        seen.append(observation(*told))
        return seen[-1]

    monkeypatch.setattr(drafting, "_observation", watched)
    drafter = build_drafter(name, target=TARGET, target_vocabulary=(), num_draft_tokens=BUDGET)
    assert measure_cheap(drafter, TARGET.vocab_size, row, 1.0).fixed > 0
    drafted = sum(len(step.draft) for step in seen)
    accepted = sum(step.num_accepted_tokens for step in seen)
    assert 0.1 < accepted / drafted < 0.9
