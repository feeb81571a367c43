"""Batches too full for any draft: there ``auto`` neither asks nor probes, for no answer could be of use."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, repeat
from operator import mul

from paceline.drafters.verify_cost import VerifyCost
from paceline.records import BatchLoad

_SURE = 0.95
"""Acceptance of each token of as good a draft as there is: copies of long passages reach it, nothing else."""
_WORTH = 0.25
"""Least that as good a draft must gain. Drafts make the step longer for every request in it, and shorten only
the reply they belong to: with a few per cent to win, requests whose drafts bring nothing lose more than the
copying ones gain. (Eight requests about code took 1.07 times as long as plain: few copied, all waited.)"""
_KEPT = 4096  # loads whose answer is kept; a batch has the same one for many steps


class BatchLimits:
    """Whether the best of drafts could pay, by load: the ceiling of all that probing might find.

    With costs as measured for SmolLM2 on two cores one can up to three requests. Beyond, a
    drafted row costs about what its token is worth there, even if it is always right.
    """

    def __init__(self, cost: VerifyCost, ask_cost: float) -> None:
        self._cost = cost
        self._ask_cost = ask_cost
        self.can_pay = lru_cache(_KEPT)(self._can_pay)

    def _can_pay(self, load: BatchLoad, budget: int) -> bool:
        """Return whether a chain of at most ``budget`` nodes could be faster than none in such a batch."""
        paths = tuple(accumulate(repeat(_SURE, budget), mul))
        # Its speed, not its count: asking would be paid for by then, and drafting the better of two losses.
        return self._cost.best(paths, budget, self._ask_cost, load).speed > 1.0 + _WORTH
