"""Whether a drafter's promises have come true of late."""

from __future__ import annotations


class Trust:
    """How the accepted tokens of this request compare with the promised ones, exponentially weighted.

    Multiplies every path probability, so that estimates which are too rosy as a whole stop costing time.
    """

    __slots__ = ("_accepted", "_promised")

    _KEEP = 0.93
    _PRIOR = 2.0  # accepted tokens the prior is worth

    def __init__(self) -> None:
        self._accepted = self._PRIOR
        self._promised = self._PRIOR

    @property
    def factor(self) -> float:
        """Accepted ÷ promised tokens of late, between 1/4 and 5/4."""
        return min(1.25, max(0.25, self._accepted / self._promised))

    def learn(self, promised: float, accepted: int) -> None:
        """Count one verified draft. ``promised``: the sum of its nodes' path probabilities."""
        keep, prior = self._KEEP, self._PRIOR * (1 - self._KEEP)
        self._accepted = self._accepted * keep + accepted + prior
        self._promised = self._promised * keep + promised + prior
