"""One HTTP request on the engine: its completions, and the queue their steps arrive in."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from paceline.engine.outputs import CompletionOutput, StepOutput
from paceline.sampling.params import SamplingParams
from paceline.server.engine_thread import Event, Failed
from paceline.server.errors import as_api_error, too_busy
from paceline.server.params import engine_error_names

logger = logging.getLogger("paceline.server")


@dataclass(slots=True, eq=False)
class Part:
    """One completion of one prompt. ``index``: its place among the choices."""

    index: int
    request_id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    num_tokens: int = 0
    done: CompletionOutput | None = None
    last_step: float | None = None


@dataclass(slots=True, eq=False)
class Job:
    """``parts`` in order of their index. ``arrived``: seconds of the monotonic clock, at the HTTP layer.
    ``workload``: the label it counts under.

    Steps come on the engine's thread (:meth:`pass_on`). They go from there by the event loop (:meth:`put`) to
    whoever reads :meth:`steps`, or straight to what the reader has lent.
    """

    job_id: str
    parts: Sequence[Part]
    arrived: float = field(default_factory=time.monotonic)
    workload: str | None = None
    _lent: Callable[[Part, StepOutput], bool] | None = None
    _num_underway: int = 0  # passed on to the event loop, and not read yet
    _has_failed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _news: list[tuple[Part, Event]] = field(default_factory=list)
    _reader: asyncio.Future[None] | None = None

    @property
    def unfinished(self) -> list[Part]:
        return [part for part in self.parts if part.done is None]

    def lend(self, take: Callable[[Part, StepOutput], bool]) -> None:
        """Let the engine's thread give steps that are not the last to ``take``, until it returns False or
        something must go by the event loop. For the reader, when all it has read is on its way.
        """
        with self._lock:
            if not (self._num_underway or self._has_failed):
                self._lent = take

    def pass_on(self, part: Part, event: Event) -> Event | None:
        """Take in an event, on the engine's thread; return what must go by the event loop."""
        with self._lock:
            if self._lent is not None and isinstance(event, StepOutput) and event.runs_on:
                failed = self._give(self._lent, part, event)
                if failed is None:
                    return None
                event = failed
            self._lent = None
            self._has_failed = self._has_failed or isinstance(event, Failed)
            self._num_underway += 1
            return event

    def _give(self, take: Callable[[Part, StepOutput], bool], part: Part, step: StepOutput) -> Failed | None:
        """Give a step to what was lent; what that raises ends this request, and no other."""
        self._take(part, step)
        try:
            if not take(part, step):
                self._lent = None
        except Exception as error:
            logger.exception("a piece of request %s could not be sent", self.job_id)
            return Failed(step.request_id, error)
        return None

    def put(self, part: Part, event: Event) -> None:
        """Take in an event, on the event loop. Whoever reads is woken once for all that came together."""
        self._news.append((part, event))
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _read(self, number: int) -> list[tuple[Part, Event]]:
        """Return the first ``number`` of the news."""
        with self._lock:
            self._num_underway -= number
        read, self._news = self._news[:number], self._news[number:]
        return read

    async def _wait_for(self, number: int) -> None:
        while len(self._news) < number:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader

    async def accepted(self) -> None:
        """Wait until the engine has queued all parts. Raises ``ApiError`` when it refused one.

        The answers to parts that were submitted together come before any of their steps.
        """
        await self._wait_for(len(self.parts))
        for _, event in self._read(len(self.parts)):
            if isinstance(event, Failed):
                raise as_api_error(event.error, engine_error_names()) from event.error

    async def steps(self) -> AsyncIterator[list[tuple[Part, StepOutput]]]:
        """Yield what has come since the last time, until all parts have ended. Raises ``ApiError``."""
        left = len(self.unfinished)
        while left:
            steps = []
            await self._wait_for(1)
            for part, event in self._read(len(self._news)):
                if isinstance(event, Failed):
                    raise as_api_error(event.error, engine_error_names()) from event.error
                if isinstance(event, StepOutput):
                    left -= self._take(part, event)
                    steps.append((part, event))
            yield steps

    def _take(self, part: Part, step: StepOutput) -> bool:
        """Count a step; return whether it was the last. Raises ``ApiError`` when it never began."""
        if step.error is not None:
            raise as_api_error(step.error)
        part.num_tokens += len(step.token_ids)
        if step.completion is None:
            return False
        part.done = step.completion
        if part.done.stop_reason == "max_queue_time" and part.done.finish_reason == "timeout":
            raise too_busy("the request waited longer than its max_queue_time", 5.0)
        return True
