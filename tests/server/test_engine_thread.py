"""The thread that owns the engine, on the fake executor: order, cancellation, failures, the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from paceline.engine.outputs import StepOutput
from paceline.engine.terms import QueueTerms
from paceline.sampling.params import SamplingParams
from paceline.server.engine_thread import Accepted, Cancelled, EngineThread, Event, Failed, Submission
from support.engines import Rig, make_rig, run_alone
from support.fake_executor import FakeExecutor

PARAMS = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
LONG = SamplingParams(temperature=0.0, max_tokens=50, ignore_eos=True)


class Inbox:
    """Keeps what a thread delivers."""

    def __init__(self, rig: Rig) -> None:
        self.events: list[Event] = []
        self._news = threading.Condition()
        self.thread = EngineThread(rig.engine, self._take)
        self.thread.start()

    def _take(self, events: Sequence[Event]) -> None:
        with self._news:
            self.events += events
            self._news.notify_all()

    def submit(self, *ids: str, params: SamplingParams = PARAMS, prompt: tuple[int, ...] = (1, 2)) -> None:
        self.thread.submit([Submission(name, prompt, params, QueueTerms()) for name in ids])

    def wait_for(self, condition: Any) -> None:
        with self._news:
            assert self._news.wait_for(lambda: any(map(condition, self.events)), 60)

    def wait_for_end(self, request_id: str) -> Event:
        def ends(event: Event) -> bool:
            is_last = not isinstance(event, StepOutput) or event.completion is not None
            return event.request_id == request_id and is_last and not isinstance(event, Accepted)

        self.wait_for(ends)
        return next(event for event in self.events if ends(event))


class Slow(FakeExecutor):
    """A forward takes a while; ``hold`` stops it altogether."""

    def __init__(self) -> None:
        super().__init__()
        self.hold = threading.Event()
        self.hold.set()

    def forward(self, batch: Any) -> Any:
        time.sleep(0.005)
        assert self.hold.wait(60)
        return super().forward(batch)


class Moody(FakeExecutor):
    """Fails, or gives NaN, while it is told to."""

    mood = "good"

    def forward(self, batch: Any) -> Any:
        if self.mood == "raises":
            raise RuntimeError("boom")
        rows = super().forward(batch)
        return rows * np.float32(np.nan) if self.mood == "nan" else rows


def test_replies_equal_those_of_the_engine_alone() -> None:
    inbox = Inbox(make_rig())
    inbox.submit("a", "b")
    for name in "ab":
        event = inbox.wait_for_end(name)
        assert isinstance(event, StepOutput)
        assert event.completion is not None
        assert event.completion.token_ids == run_alone([1, 2], PARAMS).token_ids
    assert [type(event) for event in inbox.events[:2]] == [Accepted, Accepted]
    assert inbox.thread.stop(10)


def test_refusals_come_before_any_step() -> None:
    inbox = Inbox(make_rig())
    inbox.submit("bad", prompt=(999,))
    inbox.submit("good")
    event = inbox.wait_for_end("bad")
    assert isinstance(event, Failed)
    assert "outside the vocabulary" in str(event.error)
    assert isinstance(inbox.wait_for_end("good"), StepOutput)
    assert inbox.thread.stop(10)


def test_a_cancelled_request_gives_no_step_more() -> None:
    rig = make_rig(executor=Slow())
    inbox = Inbox(rig)
    inbox.submit("a", params=LONG)
    inbox.wait_for(lambda event: isinstance(event, StepOutput))
    inbox.thread.cancel(["a", "unknown"])
    event = inbox.wait_for_end("a")
    assert isinstance(event, Cancelled)
    assert event.completion.finish_reason == "abort"
    assert 0 < len(event.completion.token_ids) < 50
    assert inbox.events[-1] is event
    assert inbox.thread.stop(10)
    rig.engine.check_integrity()
    assert rig.engine.num_free_blocks == rig.executor.num_blocks


@pytest.mark.parametrize("mood", ["raises", "nan"])
def test_a_failed_step_ends_its_requests_and_nothing_else(
    mood: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests that wait for a place were not in the forward: they go on when it works again."""
    executor = Moody()
    executor.mood = mood
    rig = make_rig(executor=executor, max_num_requests=2)
    inbox = Inbox(rig)
    inbox.submit("a", "b", "c")
    first, second = inbox.wait_for_end("a"), inbox.wait_for_end("b")
    assert isinstance(first, Failed)
    assert isinstance(second, Failed)
    executor.mood = "good"
    inbox.wait_for_end("c")  # failed as well, or waited: whichever step it came into
    inbox.submit("d")
    event = inbox.wait_for_end("d")
    assert isinstance(event, StepOutput)
    assert event.completion is not None
    assert event.completion.token_ids == run_alone([1, 2], PARAMS).token_ids
    assert "a step failed" in caplog.text
    assert inbox.thread.stop(10)
    rig.engine.check_integrity()
    assert rig.engine.num_free_blocks == rig.executor.num_blocks


def test_a_stuck_step_is_seen_from_outside() -> None:
    executor = Slow()
    inbox = Inbox(make_rig(executor=executor))
    assert inbox.thread.step_seconds == 0.0
    executor.hold.clear()
    inbox.submit("a")
    end = time.monotonic() + 60
    while inbox.thread.step_seconds < 0.2:
        assert time.monotonic() < end
        time.sleep(0.01)
    executor.hold.set()
    inbox.wait_for_end("a")
    assert inbox.thread.stop(10)


def test_stopping_ends_what_runs_and_what_came_too_late() -> None:
    rig = make_rig(executor=Slow())
    inbox = Inbox(rig)
    inbox.submit("a", params=LONG)
    inbox.wait_for(lambda event: isinstance(event, StepOutput))
    assert inbox.thread.stop(10)
    assert not inbox.thread.is_alive
    assert isinstance(inbox.wait_for_end("a"), Failed)
    assert not rig.engine.has_unfinished
    assert rig.engine.num_free_blocks == rig.executor.num_blocks


def test_an_inbox_that_raises_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    delivered: list[Event] = []

    def deliver(events: Sequence[Event]) -> None:
        delivered.extend(events)
        raise RuntimeError("the loop is closed")

    thread = EngineThread(make_rig().engine, deliver)
    thread.start()
    thread.submit([Submission("a", (1, 2), PARAMS, QueueTerms())])
    end = time.monotonic() + 60
    while not any(isinstance(event, StepOutput) and event.completion for event in delivered):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert thread.stop(10)
    assert "could not be delivered" in caplog.text
