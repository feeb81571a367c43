"""Drafters from outside run on threads of their own: one that hangs costs its request the drafts, no more.

Python cannot stop a call that does not return. It can stop waiting for it: after ``seconds`` the call raises
``DrafterError``, the request goes on without drafts, and the thread is left to itself. Should the call return
after all, the thread stops the session and ends. Drafters that come with Paceline are called directly: their
work is one native call on the target's own threads, which cannot be left in the middle and does not hang.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from paceline.drafters.base import DraftContext, Drafter, DraftSession
from paceline.errors import DrafterError
from paceline.records import Draft, StepObservation

_OURS = "paceline."


class PatientSession:
    """A session of ``drafter`` whose every call, ``start`` included, may take ``seconds``."""

    def __init__(self, drafter: Drafter, context: DraftContext, seconds: float) -> None:
        self._name = drafter.name
        self._seconds = seconds
        self._calls: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
        self._session: DraftSession | None = None
        self._is_left = False
        # A daemon: a call that never returns must not keep the program from ending.
        threading.Thread(target=self._work, name=f"drafter {self._name}", daemon=True).start()
        try:
            self._call("start", lambda: self._start(drafter, context))
        except BaseException:
            self._leave()
            raise

    def _start(self, drafter: Drafter, context: DraftContext) -> None:
        self._session = drafter.start(context)

    def propose(self, budget: int) -> Draft:
        draft: Draft = self._call("propose", lambda: self._open.propose(budget))
        return draft

    def observe(self, step: StepObservation) -> None:
        self._call("observe", lambda: self._open.observe(step))

    def stop(self) -> None:
        """Stop the session, unless it hangs: then its thread does, should it ever come back."""
        if not self._is_left:
            try:
                self._call("stop", lambda: self._open.stop())
            finally:
                self._leave()

    @property
    def _open(self) -> DraftSession:
        assert self._session is not None
        return self._session

    def _call(self, name: str, action: Callable[[], Any]) -> Any:
        self._calls.put(action)
        try:
            answer, error = self._answers.get(timeout=self._seconds)
        except queue.Empty:
            if name != "stop":
                self._calls.put(lambda: self._open.stop())
            self._leave()
            raise DrafterError(
                f"{name} of drafter {self._name!r} has not returned for {self._seconds:g} s: it is left alone"
            ) from None
        if error is not None:
            raise error
        return answer

    def _leave(self) -> None:
        self._is_left = True
        self._calls.put(None)

    def _work(self) -> None:
        while (action := self._calls.get()) is not None:
            try:
                self._answers.put((action(), None))
            except Exception as error:
                self._answers.put((None, error))


def open_session(drafter: Drafter, context: DraftContext, patience: float | None) -> DraftSession:
    """Open a session of ``drafter``; one from outside gets ``patience`` seconds for each call."""
    if patience is None or type(drafter).__module__.startswith(_OURS):
        return drafter.start(context)
    return PatientSession(drafter, context, patience)
