"""The asyncio side of the engine: jobs are opened and closed here, and events find their way to them.

Everything but :meth:`Service.deliver`, with what it counts and sends, runs on the event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from paceline.engine.outputs import StepOutput
from paceline.engine.terms import QueueTerms
from paceline.errors import DrafterError
from paceline.executors.cpu import default_threads
from paceline.sampling.params import SamplingParams
from paceline.server.engine_thread import Cancelled, EngineThread, Event, Submission
from paceline.server.errors import ApiError, bad_request, stopping, too_busy
from paceline.server.job import Job, Part
from paceline.server.metrics import Metrics
from paceline.server.settings import ServerSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from paceline.llm import LLM

T = TypeVar("T")
HAND_OUT_SECONDS = 0.002
"""The longest the engine waits for the event loop between two steps, where a forward takes every core."""
HAND_OUT_EVENTS = 8
"""It waits for so many at most: more are not handed out in that time, and would be waited for in vain."""
CHEAP_DRAFTERS = ("none", "ngram", "suffix", "recycle", "prediction", "auto")
"""What any request may name. Others load files, and which of those is the operator's choice."""


class Service:
    """An LLM being served. ``metrics`` counts what happens; ``drafters``: those that requests may name."""

    def __init__(self, llm: LLM, settings: ServerSettings) -> None:
        self.llm = llm
        self.settings = settings
        self.started = time.time()
        self.draining = False
        self.drafters = _buildable(llm)
        self.thread = EngineThread(llm.engine, self.deliver)
        self.metrics = Metrics(settings.model_names[0], self.thread)
        self._room = llm.engine.config.max_num_requests + settings.max_queue
        self._parts: dict[str, tuple[Job, Part]] = {}
        self._numbers = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handed_out = threading.Event()
        self._patience = HAND_OUT_SECONDS if llm.settings["threads"] >= default_threads() else 0.0
        # Two, so that one endless prompt does not hold up the others' tokens.
        self._prompts = ThreadPoolExecutor(2, "paceline-prompts")

    def start(self) -> None:
        """Start the engine's thread; call it on the event loop."""
        self._loop = asyncio.get_running_loop()
        self.thread.start()

    def stop(self, timeout: float = 10.0) -> bool:
        """End what still runs, and the thread, which a stuck step keeps. Returns whether it ended."""
        self.draining = True
        self._prompts.shutdown(wait=False, cancel_futures=True)
        return self.thread.stop(0.0 if self.unhealthy else timeout)

    @property
    def num_open(self) -> int:
        """Completions that have not ended."""
        return len(self._parts)

    @property
    def unhealthy(self) -> str | None:
        """Why the server makes no progress, ``None`` while it does or has nothing to do."""
        if not self.thread.is_alive:
            return "the engine's thread has ended"
        seconds = self.thread.step_seconds
        if seconds > self.settings.stuck_seconds:
            return f"a step has been running for {seconds:.0f} s"
        return None

    async def prepare(self, work: Callable[[], T]) -> T:
        """Run ``work`` (templates, tokenizing) beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._prompts, work)

    def check_room(self, num_requests: int) -> None:
        """Raise ``ApiError`` when so many requests more cannot be taken: 400 never, 429 not now."""
        if self.draining:
            raise stopping()
        if num_requests > self._room:
            raise bad_request(
                f"{num_requests} completions are more than the {self._room} that this server holds at once: "
                "lower n or send fewer prompts",
                "n",
            )
        if self.num_open + num_requests > self._room:
            waits = [
                time.monotonic() - job.arrived for job, part in self._parts.values() if not part.num_tokens
            ]
            raise too_busy(f"{self.num_open} requests run or wait", max(waits, default=1.0))

    async def open(
        self,
        job_id: str,
        requests: Sequence[tuple[tuple[int, ...], SamplingParams]],
        terms: QueueTerms,
        arrived: float,
    ) -> Job:
        """Put requests on the engine. Raises ``ApiError`` when one is refused, and then none runs."""
        self.check_room(len(requests))
        number = next(self._numbers)  # ids of jobs are the clients' words, and may come twice
        parts = [
            Part(index, f"{job_id}-{number}-{index}", ids, params)
            for index, (ids, params) in enumerate(requests)
        ]
        job = Job(job_id, parts, arrived, requests[0][1].workload)
        self._parts |= {part.request_id: (job, part) for part in parts}
        self.thread.submit([Submission(p.request_id, p.prompt, p.params, terms) for p in parts])
        try:
            await job.accepted()
        except BaseException:
            self.close(job)
            raise
        return job

    def close(self, job: Job) -> None:
        """End what of a job still runs, and forget it; safe to call again."""
        self.thread.cancel([part.request_id for part in job.unfinished if part.request_id in self._parts])
        for part in job.parts:
            self._parts.pop(part.request_id, None)

    def deliver(self, events: Sequence[Event]) -> None:
        """Count events and hand them on, on the engine's thread: to clients, or else to the event loop.

        For the loop it waits a little. Else that would wait for the interpreter until the next forward
        begins, and then take a core from it: each thread of a forward waits for the others a hundred times.
        With a core to spare the two run side by side.
        """
        now = time.monotonic()
        left = [found for event in events if (found := self._pass_on(event, now)) is not None]
        if self._loop is not None and left:
            self._handed_out.clear()
            self._loop.call_soon_threadsafe(self._hand_out, left)
            if self._patience and len(left) <= HAND_OUT_EVENTS:
                self._handed_out.wait(self._patience)

    def _pass_on(self, event: Event, now: float) -> tuple[Job, Part, Event] | None:
        """Count an event; return what is left to hand out."""
        found = self._parts.get(event.request_id)
        if isinstance(event, Cancelled):
            self.metrics.count_end(event.completion, None, None)
        if found is None:
            if isinstance(event, StepOutput) and event.completion is not None:  # ended while being cancelled
                self.metrics.count_end(event.completion, None, None)
            return None
        job, part = found
        if isinstance(event, StepOutput):
            self.metrics.count_step(job, part, event, now)
        rest = job.pass_on(part, event)
        return None if rest is None else (job, part, rest)

    def _hand_out(self, news: Sequence[tuple[Job, Part, Event]]) -> None:
        for job, part, event in news:
            if isinstance(event, StepOutput) and event.completion is not None:
                self._parts.pop(part.request_id, None)
            job.put(part, event)
        loop = asyncio.get_running_loop()
        # Readers run in the loop's next round, and what they write leaves at its end.
        loop.call_soon(loop.call_soon, self._handed_out.set)

    def model_named(self, name: str | None) -> str:
        """Return what replies call the model. Raises ``ApiError`` for a name that is not served."""
        from paceline.errors import nearest_name

        names = self.settings.model_names
        if name is None or name in names:
            return names[0]
        raise ApiError(
            404,
            f"the model {name[:80]!r} is not served here{nearest_name(name[:80], names)}; served: "
            f"{', '.join(names)}",
            param="model",
            code="model_not_found",
        )


def _buildable(llm: LLM) -> tuple[str, ...]:
    """Build what requests may ask for, now: none of it should load while others wait for their tokens."""
    names = dict.fromkeys((*CHEAP_DRAFTERS, llm.engine.spec.drafter))
    for name in names:
        llm.engine.drafter(name)
    try:
        llm.engine.drafter("eagle3")
    except DrafterError:  # no head comes with this model
        return tuple(names)
    return (*names, *(() if "eagle3" in names else ("eagle3",)))
