"""When asking a draft head pays, and how far to go on: learned per request, without a clock.

All speeds are expected tokens per time of a one-row target forward, so plain decoding has speed 1.
"""

from __future__ import annotations

import math

from paceline.drafters.verify_cost import VerifyCost

_FIRST_SPEED = 1.4  # what a head is taken to reach before it has shown anything
_KEEP_SPEED = 0.9
_PROBE_EVERY = 16  # steps of silence after which the head is tried again
_FIRST_RATE = 0.6
_RATE_TRIALS = 6.0  # trials the first rate is worth
_KEEP_RATE = 0.97


class HeadPace:
    """What one request has shown of a head.

    ``step_cost``: c, time of one draft step ÷ time of a one-row target forward. ``rate``: acceptance of one
    more level, given that the one before was accepted. ``speed``: what steps with the head promised of late.
    """

    __slots__ = ("_accepted", "_cost", "_silent_steps", "_tried", "speed", "step_cost")

    def __init__(self, cost: VerifyCost, step_cost: float) -> None:
        self._cost = cost
        self.step_cost = step_cost
        self.speed = _FIRST_SPEED
        self._silent_steps = 0
        self._accepted = self._tried = 0.0

    @property
    def rate(self) -> float:
        """Mean of a beta posterior over exponentially weighted trials."""
        return (self._accepted + _FIRST_RATE * _RATE_TRIALS) / (self._tried + _RATE_TRIALS)

    def pays(self, speed_without: float) -> bool:
        """Return whether to ask the head in this step; without hope it is still probed now and then.

        ``speed_without``: what the step promises without it (1: plain decoding).
        """
        if self.speed > speed_without * (1.0 + self._cost.min_gain):
            self._silent_steps = 0
            return True
        self._silent_steps += 1
        if self._silent_steps < _PROBE_EVERY:
            return False
        self._silent_steps = 0
        return True

    def promised(self, speed: float) -> None:
        """Learn what a step in which the head was asked promises, its own cost counted."""
        self.speed = _KEEP_SPEED * self.speed + (1.0 - _KEEP_SPEED) * speed

    def learn(self, num_levels: int, num_accepted: int, num_committed: int) -> None:
        """Learn from a draft of ``num_levels`` levels of which the first ``num_accepted`` were right.

        What the target says behind the last committed token is not known, so it counts for nothing.
        """
        refused = num_accepted < min(num_levels, num_committed)
        for accepted in (*(1.0 for _ in range(num_accepted)), *((0.0,) if refused else ())):
            self._tried = self._tried * _KEEP_RATE + 1.0
            self._accepted = self._accepted * _KEEP_RATE + accepted

    def least_parent(self, limit: int, factor: float) -> float:
        """Return the log-probability of a path from which one more draft step behind it can pay.

        A step behind a path of probability p gains at most p · rate tokens and costs c and a row to verify;
        it pays while tokens per cost exceed the speed there is without it. ``factor``: real ÷ estimated
        probabilities. (In simulations of calibrated heads the best threshold was 0.5 to 0.6 for c from 0.03
        to 0.1, which is what this gives, and it was 2 to 10 % faster than one that drops such nodes as well.)
        """
        price = self.step_cost + self._cost.mean_slope(limit)
        least = max(1.0, self.speed) * price / (self.rate * factor)
        return math.log(min(1.0, max(1e-6, least)))

    def chain_depth(self, limit: int) -> int:
        """Return how long a chain promises the most speed, by the mean rate alone; 0 when none pays."""
        best, best_depth, expected, path = 1.0 + self._cost.min_gain, 0, 1.0, 1.0
        for depth in range(1, limit + 1):
            path *= self.rate
            expected += path
            speed = expected / (self._cost.at(depth + 1) + self.step_cost * depth)
            if speed > best:
                best, best_depth = speed, depth
        self.speed = best if best_depth else 1.0
        return best_depth
