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

    def best_count(self, paths: Sequence[float], limit: int) -> int:
        """Return how many of the first ``limit`` nodes to draft; 0 when drafting does not pay.

        ``paths``: falling probabilities that each node's whole path is accepted. A step that verifies n nodes
        commits 1 + sum(paths[:n]) tokens on average and takes r(n + 1); the best n maximises their quotient.
        """
        best, best_count, expected = 1.0 + self.min_gain, 0, 1.0
        for count, path in enumerate(paths[:limit], start=1):
            expected += path
            speed = expected / self.at(count + 1)
            if speed > best:
                best, best_count = speed, count
        return best_count
