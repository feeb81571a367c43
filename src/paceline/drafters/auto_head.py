"""The draft head of one request under ``auto``: told nothing until it is asked.

Taking in what was written costs a head time: Python for each step, and a pass over each 256 tokens, those of
a prompt included. A request whose head is never asked, or is let go, does not pay that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.drafters.eagle3 import Eagle3Session
from paceline.drafters.scored_tree import ScoredTree
from paceline.records import BatchLoad, StepObservation

MOST_HELD = 1024
"""Tokens whose states are held back, 7 MB with SmolLM2. Beyond, the head reads them: its cache is smaller."""


class HeadSource:
    """A head's session, or none. What raises is handed to ``failed``, and the session is gone.

    ``spent``, ``grown``: of the step in which the head was asked last; 0 and empty once that is told of.
    """

    __slots__ = ("_failed", "_held", "_is_asked", "_num_held", "_session")

    def __init__(self, session: Eagle3Session | None, failed: Callable[[Exception], None]) -> None:
        self._session = session
        self._failed = failed
        self._held: list[StepObservation] = []
        self._num_held = 0
        self._is_asked = False

    @property
    def session(self) -> Eagle3Session | None:
        return self._session

    @property
    def spent(self) -> float:
        """What asking has cost in this step, in one-row target forwards."""
        return self._session.spent if self._session is not None and self._is_asked else 0.0

    @property
    def grown(self) -> ScoredTree:
        """What the head offered in this step, as it promised it."""
        return self._session.grown if self._session is not None and self._is_asked else ScoredTree()

    def pays(self, speed_without: float, load: BatchLoad) -> bool:
        """Return whether to ask; a head that has not paid for long is let go here."""
        if self._session is None:
            return False
        if self._session.pace.is_hopeless:
            self.drop()
            return False
        return self._session.pace.pays(speed_without, load)

    def grow(self, budget: int, load: BatchLoad) -> ScoredTree | None:
        """Return the head's candidates; ``None`` when it cannot run now."""
        self._catch_up()
        if self._session is None:
            return None
        self._is_asked = True
        try:
            return self._session.grow(budget, load)
        except Exception as error:
            self._fail(error)
            return None

    def promised(self, speed: float, paths: Sequence[float]) -> None:
        """Tell the head what the step promises with what it gave."""
        if self._session is not None:
            self._session.pace.promised(speed, paths, self._session.num_levels)

    def observe(self, step: StepObservation) -> None:
        """Take a step: at once if the head was asked in it, else with the next asking."""
        if self._session is None:
            return
        self._held.append(step)
        self._num_held += len(step.states) if step.states is not None else 0
        if self._is_asked or self._num_held > MOST_HELD:
            self._catch_up()
            self._is_asked = False

    def states_wanted_from(self, limit: int) -> int:
        """See :class:`~paceline.drafters.base.RememberingSession`."""
        self._catch_up()
        return limit if self._session is None else self._session.states_wanted_from(limit)

    def drop(self) -> None:
        """Let the head go for the rest of the request; safe to call again."""
        session, self._session = self._session, None
        self._held.clear()
        if session is not None:
            session.stop()

    def _catch_up(self) -> None:
        held, self._held, self._num_held = self._held, [], 0
        try:
            for step in held:
                if self._session is not None:
                    self._session.observe(step)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failed(error)
        self.drop()
