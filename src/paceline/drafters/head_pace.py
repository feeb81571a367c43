"""When asking a draft head pays, and how far to go on: learned per request, without a clock.

All speeds are expected tokens per plain token's time, so plain decoding has speed 1 in any batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.drafters.verify_cost import VerifyCost
from paceline.records import ALONE, BatchLoad

_KEEP_SPEED = 0.9
_PROBE_EVERY = 16  # steps of silence after which the head is tried again, at least
_PROBE_SHARE = 0.01  # of the time, at most, goes to such trials
_LONGEST_WAIT = 4  # times the first wait: trials that show nothing become rarer
_GIVE_UP = 64  # steps without paying after which a head is let go, in a large batch fewer
_GIVE_UP_IN_BATCH = 16
_LARGE_BATCH = 4
_FORLORN = 0.8  # speed that an average draft promises, below which a head is hardly waited for
_GIVE_UP_FORLORN = 8
_FIRST_RATE = 0.6
_RATE_TRIALS = 6.0  # trials the first rate is worth
_KEEP_RATE = 0.97
_FIRST_LEVELS = 3.0

# What a head is taken to reach before it has shown anything: path probabilities of its best nodes, as
# measured on Spec-Bench with SmolLM2's head (docs/controller.md), greedily and at temperature 1.
_FIRST_PATHS = {
    True: (0.39, 0.20, 0.12, 0.08, 0.07, 0.05, 0.04),
    False: (0.24, 0.10, 0.07, 0.04, 0.03, 0.02, 0.02),
}


def patience(num_requests: int) -> int:
    """Return how many steps of silence a head's states are copied for in a batch of so many requests."""
    return _GIVE_UP if num_requests < _LARGE_BATCH else _GIVE_UP_IN_BATCH


@dataclass(frozen=True, slots=True)
class HeadCost:
    """What drafting costs, in one-row target forwards.

    ``catch_up``: the first pass of a draft beyond a later one, since it also reads what was committed.
    ``step``: c, each level.
    """

    catch_up: float
    step: float

    def at(self, levels: float) -> float:
        """Return the cost of a draft of ``levels`` levels."""
        return self.catch_up + self.step * levels


class HeadPace:
    """What one request has shown of a head.

    ``rate``: acceptance of one more level, given that the one before was accepted. ``speed``: what steps with
    the head promised of late, in batches like the present one. ``is_greedy``: whether the request takes the
    argmax, which a head guesses far better than draws.
    """

    __slots__ = (
        "_accepted",
        "_cost",
        "_idle_steps",
        "_is_forlorn",
        "_levels",
        "_num_requests",
        "_paths",
        "_silent_steps",
        "_tried",
        "_wait",
        "drafting",
        "speed",
    )

    def __init__(self, cost: VerifyCost, drafting: HeadCost, is_greedy: bool = True) -> None:
        self._cost = cost
        self.drafting = drafting
        self._paths = list(_FIRST_PATHS[is_greedy])
        self._levels = _FIRST_LEVELS
        self._num_requests = 0  # requests of the batch that ``speed`` holds for
        self.speed = 1.0
        self._silent_steps = self._idle_steps = 0
        self._wait = 1
        self._is_forlorn = False
        self._accepted = self._tried = 0.0

    @property
    def rate(self) -> float:
        """Mean of a beta posterior over exponentially weighted trials."""
        return (self._accepted + _FIRST_RATE * _RATE_TRIALS) / (self._tried + _RATE_TRIALS)

    def pays(self, speed_without: float, load: BatchLoad = ALONE) -> bool:
        """Return whether to ask the head in this step; without hope it is still probed now and then.

        ``speed_without``: what the step promises without it (1: plain decoding).
        """
        if load.num_requests != self._num_requests:
            self._num_requests = load.num_requests
            self.speed = self._expected_speed(load)
        if self.speed > speed_without * (1.0 + self._cost.min_gain):
            self._silent_steps, self._wait, self._idle_steps = 0, 1, 0
            return True
        self._silent_steps += 1
        self._idle_steps += 1
        if self._idle_steps == _GIVE_UP_FORLORN:  # what the clock adds may have passed
            self.speed = self._expected_speed(load)
        price = load.surcharge.on(self.drafting.at(self._levels)) / self._cost.share(load)
        if self._silent_steps < self._wait * max(_PROBE_EVERY, price / _PROBE_SHARE):
            return False
        self._silent_steps, self._wait = 0, min(_LONGEST_WAIT, 2 * self._wait)
        return True

    @property
    def is_hopeless(self) -> bool:
        """Whether it has not paid for so long that its hidden states are not worth copying any more.

        They cost a few per cent of a step. Once they are missing it cannot come back in this request.
        """
        least = _GIVE_UP_FORLORN if self._is_forlorn else patience(self._num_requests)
        return self._idle_steps >= least

    def promised(self, speed: float, paths: Sequence[float] = (), levels: int = 0) -> None:
        """Learn what a step in which the head was asked promises, its own cost counted.

        ``paths``: of the candidates, falling; ``levels`` it went down.
        """
        self.speed = _KEEP_SPEED * self.speed + (1.0 - _KEEP_SPEED) * speed
        self._levels = _KEEP_SPEED * self._levels + (1.0 - _KEEP_SPEED) * levels
        for rank, mean in enumerate(self._paths):
            path = paths[rank] if rank < len(paths) else 0.0
            self._paths[rank] = _KEEP_SPEED * mean + (1.0 - _KEEP_SPEED) * path

    def learn(self, num_levels: int, num_accepted: int, num_committed: int) -> None:
        """Learn from a draft of ``num_levels`` levels of which the first ``num_accepted`` were right.

        What the target says behind the last committed token is not known, so it counts for nothing.
        """
        refused = num_accepted < min(num_levels, num_committed)
        for accepted in (*(1.0 for _ in range(num_accepted)), *((0.0,) if refused else ())):
            self._tried = self._tried * _KEEP_RATE + 1.0
            self._accepted = self._accepted * _KEEP_RATE + accepted

    def least_parent(self, limit: int, factor: float, load: BatchLoad = ALONE) -> float:
        """Return the log-probability of a path from which one more draft step behind it can pay.

        A step behind a path of probability p gains at most p · rate tokens and costs c and a row to verify;
        it pays while tokens per cost exceed the speed there is without it. ``factor``: real ÷ estimated
        probabilities. (In simulations of calibrated heads the best threshold was 0.5 to 0.6 for c from 0.03
        to 0.1, which is what this gives, and it was 2 to 10 % faster than one that drops such nodes as well.)
        """
        step = load.surcharge.factor * self.drafting.step
        price = (step + self._cost.mean_slope(limit, load)) / self._cost.share(load)
        least = max(1.0, self.speed) * price / (self.rate * factor)
        return math.log(min(1.0, max(1e-6, least)))

    def chain_depth(self, limit: int, load: BatchLoad = ALONE) -> int:
        """Return how long a chain promises the most speed, by the mean rate alone; 0 when none pays."""
        share, base = self._cost.share(load), self._cost.at(load.num_rows)
        best, best_depth, expected, path = 1.0 + self._cost.min_gain, 0, 1.0, 1.0
        for depth in range(1, limit + 1):
            path *= self.rate
            expected += path
            added = self._cost.at(load.num_rows + depth) - base + self.drafting.at(depth)
            speed = expected * share / (share + load.surcharge.on(added))
            if speed > best:
                best, best_depth = speed, depth
        self.speed = best if best_depth else 1.0
        return best_depth

    def _expected_speed(self, load: BatchLoad) -> float:
        """Return what an average draft promises in such a batch."""
        spent, count = self.drafting.at(self._levels), len(self._paths)
        drafting = self._cost.best(self._paths, count, spent, load, min_gain=-1.0)
        self._is_forlorn = drafting.speed < _FORLORN
        return self._cost.best(self._paths, count, spent, load).speed
