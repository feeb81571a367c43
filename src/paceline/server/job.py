"""One HTTP request on the engine: its completions, and the queue their steps arrive in."""

from __future__ import annotations

import asyncio
import logging
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
    ``workload``: the label it counts under. ``shortcut``: takes steps that are not the last as they come,
    while whoever reads :meth:`steps` waits.
    """

    job_id: str
    parts: Sequence[Part]
    arrived: float = field(default_factory=time.monotonic)
    workload: str | None = None
    shortcut: Callable[[Part, StepOutput], None] | None = None
    _news: list[tuple[Part, Event]] = field(default_factory=list)
    _reader: asyncio.Future[None] | None = None

    @property
    def unfinished(self) -> list[Part]:
        return [part for part in self.parts if part.done is None]

    def put(self, part: Part, event: Event) -> None:
        """Take in an event, on the event loop. Whoever reads is woken once for all that came together."""
        waiting = self._waiting
        if waiting and self.shortcut is not None and isinstance(event, StepOutput) and event.runs_on:
            failed = self._pass_on(self.shortcut, part, event)
            if failed is None:
                return
            event = failed
        self._news.append((part, event))
        if waiting:
            waiting.set_result(None)

    def _pass_on(
        self, shortcut: Callable[[Part, StepOutput], None], part: Part, step: StepOutput
    ) -> Failed | None:
        """Take the shortcut; what it raises ends this request, not others whose events come behind."""
        self._take(part, step)
        try:
            shortcut(part, step)
        except Exception as error:
            logger.exception("a piece of request %s could not be sent", self.job_id)
            self.shortcut = None
            return Failed(step.request_id, error)
        return None

    @property
    def _waiting(self) -> asyncio.Future[None] | None:
        """What a reader waits for, if one does and has been told of nothing yet."""
        return None if self._reader is None or self._reader.done() else self._reader

    async def _next(self, at_least: int) -> list[tuple[Part, Event]]:
        while len(self._news) < at_least:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        news, self._news = self._news, []
        return news

    async def accepted(self) -> None:
        """Wait until the engine has queued all parts. Raises ``ApiError`` when it refused one.

        The answers to parts that were submitted together come before any of their steps.
        """
        news = await self._next(len(self.parts))
        self._news = news[len(self.parts) :] + self._news
        for _, event in news[: len(self.parts)]:
            if isinstance(event, Failed):
                raise as_api_error(event.error, engine_error_names()) from event.error

    async def steps(self) -> AsyncIterator[list[tuple[Part, StepOutput]]]:
        """Yield what has come since the last time, until all parts have ended. Raises ``ApiError``."""
        left = len(self.unfinished)
        while left:
            steps = []
            for part, event in await self._next(1):
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
