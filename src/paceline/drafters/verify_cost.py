"""How much to draft, from what verifying costs: the node count with the most expected tokens per second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.config import check_float, check_int
from paceline.control.default_costs import CONSERVATIVE_RATIOS
from paceline.errors import ConfigError
from paceline.records import ALONE, BatchLoad
from paceline.theory.cost_table import CostTable
from paceline.theory.planner import best_count

_TABLE_ROWS = 64  # of a cost table that a view holds: a full batch and its drafts


@dataclass(frozen=True, slots=True)
class Choice:
    """``count`` nodes to draft; ``speed``: expected tokens per plain token's time (plain decoding: 1)."""

    count: int
    speed: float


@dataclass(frozen=True, slots=True)
class VerifyCost:
    """The verify cost curve r(M): time of a forward with M rows ÷ time with one row.

    ``ratios[M - 1]`` is r(M), measured with logits for every row and ``context`` tokens in the cache. Past
    its end the curve goes on with its mean slope. ``min_gain``: drafting must promise at least this much
    speed-up over plain decoding (0.02: two per cent) to be done at all, because estimates are noisy and a
    draft that does not pay costs. ``per_sequence_token``, ``per_row_token``: what each further token of cache
    adds for a request and for each of its rows, in steps of one row.
    """

    ratios: tuple[float, ...] = CONSERVATIVE_RATIOS
    min_gain: float = 0.02
    context: int = 0
    per_sequence_token: float = 0.0
    per_row_token: float = 0.0

    def __post_init__(self) -> None:
        if not self.ratios or not all(math.isfinite(r) and r > 0 for r in self.ratios):
            raise ConfigError(
                f"verify_cost={self.ratios!r} must be a non-empty tuple of positive numbers r(1), r(2) …"
            )
        if not 0 <= self.min_gain < 1:
            raise ConfigError(f"min_gain={self.min_gain!r} must be a number from 0 to below 1")
        check_int("verify_cost: context", self.context, 0)
        for name in ("per_sequence_token", "per_row_token"):
            check_float(f"verify_cost: {name}", getattr(self, name), 0.0, 1.0)

    def at(self, rows: int) -> float:
        """Return r(rows) relative to r(1)."""
        last = len(self.ratios)
        if rows <= last:
            return self.ratios[rows - 1] / self.ratios[0]
        slope = max(0.0, (self.ratios[-1] - self.ratios[0]) / (last - 1)) if last > 1 else self.ratios[0]
        return (self.ratios[-1] + slope * (rows - last)) / self.ratios[0]

    def mean_slope(self, limit: int, load: BatchLoad = ALONE) -> float:
        """Return what a drafted row costs on average when ``limit`` of them join the forward."""
        added = self.at(load.num_rows + limit) - self.at(load.num_rows)
        return max(0.0, load.surcharge.factor * added) / limit

    def share(self, load: BatchLoad) -> float:
        """Return what a plain token costs in this batch: a request's share of a step without drafts.

        Saving a token saves this much later on. Alone it is 1; in a large batch far less, so drafts must be
        surer there.
        """
        return self.at(load.num_requests) / load.num_requests

    def best(
        self,
        paths: Sequence[float],
        limit: int,
        spent: float = 0.0,
        load: BatchLoad = ALONE,
        min_gain: float | None = None,
        context: int = 0,
    ) -> Choice:
        """Return how many of the first ``limit`` nodes to draft, and the speed that promises.

        ``paths``: falling probabilities that each node's whole path is accepted. ``spent``: what drafting
        has cost already, in one-row forwards. ``context``: tokens the request has in the cache. With R rows
        in the forward and a plain token's price s, a step that verifies n nodes commits 1 + sum(paths[:n])
        tokens on average, for s + spent + r(R + n) - r(R), all but s with the load's surcharge; the best n
        maximises their quotient times s. It is 0 unless that is at least ``min_gain`` faster than verifying
        nothing (the curve's own unless given).
        """
        beyond, factor = max(0, context - self.context), load.surcharge.factor
        row = self.per_row_token * beyond
        share = self.share(load) + self.per_sequence_token * beyond + row
        spent, base = load.surcharge.on(spent), self.at(load.num_rows)
        nodes = range(1, min(limit, len(paths)) + 1)
        added = [self.at(load.num_rows + count) - base + count * row for count in nodes]
        costs = [share + spent + factor * extra for extra in added]
        gain = self.min_gain if min_gain is None else min_gain
        plain = 1.0 / (share + spent)
        count, speed = best_count(paths[: len(costs)], costs, 1.0, plain * (1.0 + gain))
        return Choice(count, share * (speed if count else plain))

    @classmethod
    def of(cls, table: CostTable, min_gain: float = 0.02) -> VerifyCost:
        """Return the view of a measured table: the time of whole steps, their fixed part included."""
        step = 1.0 + table.step_cost
        return cls(
            table.step_ratios(_TABLE_ROWS),
            min_gain,
            table.context,
            table.per_sequence_token / step,
            table.per_row_token / step,
        )
