"""How much to draft, from what verifying costs: the node count with the most expected tokens per second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.errors import ConfigError

# r(1 … 8) of the CPU executor with SmolLM2-135M and two threads (AVX-512 VNNI), logits for every row, rounded
# up: drafting that pays by this curve pays there, and the more so on larger models.
CONSERVATIVE_RATIOS = (1.0, 1.05, 1.12, 1.28, 1.4, 1.57, 1.8, 1.9)


@dataclass(frozen=True, slots=True)
class Choice:
    """``count`` nodes to draft; ``speed``: expected tokens per time of a one-row forward (plain: 1)."""

    count: int
    speed: float


@dataclass(frozen=True, slots=True)
class VerifyCost:
    """The verify cost curve r(M): time of a forward with M rows ÷ time with one row.

    ``ratios[M - 1]`` is r(M), measured with logits for every row. Past its end the curve goes on with its
    mean slope. ``min_gain``: drafting must promise at least this much speed-up over plain decoding (0.02: two
    per cent) to be done at all, because estimates are noisy and a draft that does not pay costs.
    """

    ratios: tuple[float, ...] = CONSERVATIVE_RATIOS
    min_gain: float = 0.02

    def __post_init__(self) -> None:
        if not self.ratios or not all(math.isfinite(r) and r > 0 for r in self.ratios):
            raise ConfigError(
                f"verify_cost={self.ratios!r} must be a non-empty tuple of positive numbers r(1), r(2) …"
            )
        if not 0 <= self.min_gain < 1:
            raise ConfigError(f"min_gain={self.min_gain!r} must be a number from 0 to below 1")

    def at(self, rows: int) -> float:
        """Return r(rows) relative to r(1)."""
        last = len(self.ratios)
        if rows <= last:
            return self.ratios[rows - 1] / self.ratios[0]
        slope = max(0.0, (self.ratios[-1] - self.ratios[0]) / (last - 1)) if last > 1 else self.ratios[0]
        return (self.ratios[-1] + slope * (rows - last)) / self.ratios[0]

    def mean_slope(self, limit: int) -> float:
        """Return what a drafted row costs on average when ``limit`` of them are verified."""
        return max(0.0, self.at(limit + 1) - 1.0) / limit

    def best(self, paths: Sequence[float], limit: int, spent: float = 0.0) -> Choice:
        """Return how many of the first ``limit`` nodes to draft, and the speed that promises.

        ``paths``: falling probabilities that each node's whole path is accepted. ``spent``: what drafting
        has cost already, in one-row forwards. A step that verifies n nodes commits 1 + sum(paths[:n]) tokens
        on average and takes spent + r(n + 1); the best n maximises their quotient. It is 0 unless that is at
        least ``min_gain`` faster than verifying nothing.
        """
        plain = 1.0 / (spent + 1.0)
        best, best_count, expected = plain * (1.0 + self.min_gain), 0, 1.0
        for count, path in enumerate(paths[:limit], start=1):
            expected += path
            speed = expected / (spent + self.at(count + 1))
            if speed > best:
                best, best_count = speed, count
        return Choice(best_count, best if best_count else plain)

    def best_count(self, paths: Sequence[float], limit: int) -> int:
        """Return how many of the first ``limit`` nodes to draft; 0 when drafting does not pay."""
        return self.best(paths, limit).count
