"""How much to draft, from what verifying costs: the node count with the most expected tokens per second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.control.default_costs import CONSERVATIVE_RATIOS
from paceline.errors import ConfigError
from paceline.records import ALONE, BatchLoad
from paceline.theory.cost_table import CostTable

_TABLE_ROWS = 64  # of a cost table that a view holds: a full batch and its drafts


@dataclass(frozen=True, slots=True)
class Choice:
    """``count`` nodes to draft; ``speed``: expected tokens per plain token's time (plain decoding: 1)."""

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

    def mean_slope(self, limit: int, load: BatchLoad = ALONE) -> float:
        """Return what a drafted row costs on average when ``limit`` of them join the forward."""
        return max(0.0, self.at(load.num_rows + limit) - self.at(load.num_rows)) / limit

    def share(self, load: BatchLoad) -> float:
        """Return what a plain token costs in this batch: a deciding request's share of a step without drafts.

        Saving a token saves this much later on. Alone it is 1; in a large batch far less, so drafts must be
        surer there.
        """
        return self.at(load.num_deciding) / load.num_deciding

    def best(
        self,
        paths: Sequence[float],
        limit: int,
        spent: float = 0.0,
        load: BatchLoad = ALONE,
        min_gain: float | None = None,
    ) -> Choice:
        """Return how many of the first ``limit`` nodes to draft, and the speed that promises.

        ``paths``: falling probabilities that each node's whole path is accepted. ``spent``: what drafting
        has cost already, in one-row forwards. With R rows in the forward and a plain token's price s, a step
        that verifies n nodes commits 1 + sum(paths[:n]) tokens on average, for s + spent + r(R + n) - r(R);
        the best n maximises their quotient times s. It is 0 unless that is at least ``min_gain`` faster than
        verifying nothing (the curve's own unless given).
        """
        share, base = self.share(load), self.at(load.num_rows)
        plain = share / (share + spent)
        gain = self.min_gain if min_gain is None else min_gain
        best, best_count, expected = plain * (1.0 + gain), 0, 1.0
        for count, path in enumerate(paths[:limit], start=1):
            expected += path
            speed = expected * share / (share + spent + self.at(load.num_rows + count) - base)
            if speed > best:
                best, best_count = speed, count
        return Choice(best_count, best if best_count else plain)

    def best_count(self, paths: Sequence[float], limit: int) -> int:
        """Return how many of the first ``limit`` nodes to draft; 0 when drafting does not pay."""
        return self.best(paths, limit).count

    @classmethod
    def of(cls, table: CostTable, min_gain: float = 0.02) -> VerifyCost:
        """Return the view of a measured table: the time of whole steps, their fixed part included."""
        return cls(table.step_ratios(_TABLE_ROWS), min_gain)
