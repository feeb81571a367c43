"""The thread that owns the engine: requests come in by a queue, what steps give goes out by one call.

Nothing else touches the engine while the thread lives. Cancellations and new requests are taken between
steps. A step that raises ends the requests that had a place in it, and the thread goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.engine.engine import Engine
from paceline.engine.outputs import CompletionOutput, EngineLoad, StepOutput
from paceline.engine.terms import QueueTerms
from paceline.sampling.params import SamplingParams

logger = logging.getLogger("paceline.server")


@dataclass(frozen=True, slots=True)
class Submission:
    """A request for the engine; see ``Engine.add_request``."""

    request_id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    terms: QueueTerms


@dataclass(frozen=True, slots=True)
class Accepted:
    """The engine has queued a request."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A request was refused, or a step of it raised. Nothing more will come of it."""

    request_id: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A cancelled request is out of the engine; ``completion`` is what it had."""

    request_id: str
    completion: CompletionOutput


Event = Accepted | StepOutput | Failed | Cancelled
Deliver = Callable[[Sequence[Event]], None]
LOAD_SECONDS = 0.05


class EngineThread:
    """``deliver`` is called on the thread, once per step, with all that has happened; the next step waits.
    ``load``: of :data:`LOAD_SECONDS` ago at most, while steps go on.
    """

    def __init__(self, engine: Engine, deliver: Deliver) -> None:
        self._engine = engine
        self._deliver = deliver
        self._commands: deque[Submission | str] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._step_began: float | None = None
        self._thread = threading.Thread(target=self._run, name="paceline-engine", daemon=True)
        self.load: EngineLoad = engine.load
        self._looked = time.monotonic()

    def start(self) -> None:
        self._thread.start()

    def submit(self, requests: Sequence[Submission]) -> None:
        """Queue requests; each is answered by ``Accepted`` or ``Failed`` before the next step."""
        self._tell(requests)

    def cancel(self, request_ids: Sequence[str]) -> None:
        """End requests before the next step; unknown ones are left alone."""
        self._tell(request_ids)

    def stop(self, timeout: float) -> bool:
        """End all requests and the thread; return whether it ended in ``timeout`` seconds."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def step_seconds(self) -> float:
        """Seconds since the step that runs now began; 0 between steps."""
        began = self._step_began
        return 0.0 if began is None else time.monotonic() - began

    @property
    def num_alarms(self) -> int:
        """Alarms that the watch over acceptance has raised."""
        return self._engine.watch.num_alarms

    def _tell(self, commands: Sequence[Submission | str]) -> None:
        with self._wake:
            self._commands.extend(commands)
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._commands or self._stopping or self._engine.has_unfinished):
                    self._wake.wait()
                commands = list(self._commands)
                self._commands.clear()
                if self._stopping:
                    break
            events: list[Event] = [event for command in commands for event in self._obey(command)]
            if events:  # before the step: a request learns at once that it was refused
                self._hand_out(events)
            if self._engine.has_unfinished:
                self._hand_out(self._step())
            self._look_at_load(at_once=bool(commands) or not self._engine.has_unfinished)
        self._end_all(commands)

    def _look_at_load(self, at_once: bool) -> None:
        """Each step would pay for what somebody asks for every few seconds."""
        now = time.monotonic()
        if at_once or now - self._looked >= LOAD_SECONDS:
            self.load, self._looked = self._engine.load, now

    def _obey(self, command: Submission | str) -> list[Event]:
        if isinstance(command, str):
            completion = self._engine.abort(command)
            return [] if completion is None else [Cancelled(command, completion)]
        try:
            self._engine.add_request(command.request_id, command.prompt, command.params, command.terms)
        except Exception as error:
            return [Failed(command.request_id, error)]
        return [Accepted(command.request_id)]

    def _step(self) -> Sequence[Event]:
        self._step_began = time.monotonic()
        try:
            return self._engine.step()
        except Exception as error:
            # The requests that were in the forward: some were settled, and their outputs are lost with it.
            # None ran when waiting ones cannot start; then they are what cannot go on.
            ids = self._engine.running_ids or self._engine.request_ids
            logger.exception("a step failed; %d requests end", len(ids))
            return [self._fail(request_id, error) for request_id in ids]
        finally:
            self._step_began = None

    def _fail(self, request_id: str, error: Exception) -> Failed:
        self._engine.abort(request_id)
        return Failed(request_id, error)

    def _end_all(self, commands: Sequence[Submission | str]) -> None:
        """Free everything, so that whoever looks at the engine afterwards finds it empty."""
        stopped = RuntimeError("the engine has stopped")
        unborn = [command.request_id for command in commands if isinstance(command, Submission)]
        ids = [*self._engine.request_ids, *unborn]
        self._hand_out([self._fail(request_id, stopped) for request_id in ids])
        self.load = self._engine.load

    def _hand_out(self, events: Sequence[Event]) -> None:
        try:
            self._deliver(events)
        except Exception:  # a closed event loop, when the program ends in the middle of a step
            logger.exception("%d events of the engine could not be delivered", len(events))
