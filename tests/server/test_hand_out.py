"""The engine waits until the event loop has handed out what the last step gave, but not for long.

Without the wait the loop got the interpreter when the next forward had begun, and ran on one of its cores: a
streamed token cost 13 % of a step, with it 5 % (docs/log.md).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paceline import LLM
from paceline.engine.outputs import StepOutput
from paceline.sampling.params import SamplingParams
from paceline.server import service as serving
from paceline.server.engine_thread import Accepted
from paceline.server.job import Job, Part
from paceline.server.service import Service
from paceline.server.settings import ServerSettings


@pytest.fixture
def service(served_model: Path) -> Service:
    return Service(LLM(served_model, threads=1), ServerSettings(("tiny",)))


async def deliver_from_thread(service: Service, then: Callable[[], Any]) -> Any:
    """Deliver a step of one open job from another thread; return what ``then`` says behind it."""
    part = Part(0, "r-0", (1, 2), SamplingParams())
    job = Job("r", [part])
    service._parts["r-0"] = (job, part)
    service._loop = asyncio.get_running_loop()
    written: list[int] = []

    async def read() -> None:
        async for steps in job.steps():
            written.extend(token for _, step in steps for token in step.token_ids)

    reader = asyncio.ensure_future(read())
    await asyncio.sleep(0)

    def engine() -> tuple[list[int], Any]:
        service.deliver([StepOutput("r-0", (7,), "x")])
        return list(written), then()

    found = await asyncio.get_running_loop().run_in_executor(None, engine)
    reader.cancel()
    return found


def test_a_step_has_been_read_when_the_engine_goes_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_patience", 10.0)
    start = time.monotonic()
    written, _ = asyncio.run(deliver_from_thread(service, lambda: None))
    assert written == [7]
    assert time.monotonic() - start < 5.0, "it did not wait for its limit"


@pytest.mark.parametrize(("cores", "waits"), [(1, True), (2, False)])
def test_with_a_core_to_spare_nobody_waits(
    served_model: Path, monkeypatch: pytest.MonkeyPatch, cores: int, waits: bool
) -> None:
    monkeypatch.setattr(serving, "default_threads", lambda: cores)
    found = Service(LLM(served_model, threads=1), ServerSettings(("tiny",)))
    assert (found._patience > 0.0) is waits


def test_an_event_loop_that_is_busy_is_not_waited_for(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_patience", 0.01)
    is_over = threading.Event()

    async def run() -> Any:
        loop = asyncio.get_running_loop()
        service._loop = loop
        part = Part(0, "r-0", (1, 2), SamplingParams())
        service._parts["r-0"] = (Job("r", [part]), part)
        delivered = loop.run_in_executor(None, service.deliver, [Accepted("r-0")])
        is_over.wait(0.3)  # the loop stands still meanwhile
        is_late = not is_over.is_set()
        await delivered
        return is_late

    original = service._handed_out.wait

    def wait(timeout: float | None = None) -> bool:
        found = original(timeout)
        is_over.set()
        return found

    monkeypatch.setattr(service._handed_out, "wait", wait)
    assert asyncio.run(run()) is False, "the engine's thread went on while the loop stood still"
