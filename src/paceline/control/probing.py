"""When to ask a source whose asking costs something, and when to leave it alone for a while."""

from __future__ import annotations

_FIRST_WORTH = 0.05
_KEEP = 0.9
_LONGEST_REST = 32  # 16 costs text that nothing predicts 0.2 % more, and finds no more on replayed replies


class Probing:
    """Whether asking has paid of late, in one request.

    ``worth``: exponentially weighted gain per asking (0.1: ten per cent of a plain token's time), its own
    cost taken off. While it is below 0 and nothing comes of asking, rests of 1, 2, 4 … steps follow, at most
    ``longest``; the first gain ends them.
    """

    __slots__ = ("_longest", "_patience", "_rest", "worth")

    def __init__(self, longest: int = _LONGEST_REST) -> None:
        self._longest = longest
        self.worth = _FIRST_WORTH
        self._rest = 0
        self._patience = 1

    @property
    def rest(self) -> int:
        """Steps to come in which :meth:`is_due` would say no."""
        return self._rest

    def skip(self, steps: int) -> None:
        """Count ``steps`` in which :meth:`is_due` was not called."""
        self._rest = max(0, self._rest - steps)

    def is_due(self) -> bool:
        """Return whether to ask in this step; to be called once per step."""
        if self._rest:
            self._rest -= 1
            return False
        return True

    def learn(self, gain: float) -> None:
        """Count one asking that promised ``gain``."""
        self.worth = _KEEP * self.worth + (1.0 - _KEEP) * gain
        if gain > 0.0 or self.worth >= 0.0:
            self._patience = 1
            return
        self._rest = self._patience
        self._patience = min(self._longest, 2 * self._patience)
