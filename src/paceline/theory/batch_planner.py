"""How many nodes each request of one forward drafts, so that the whole batch commits the most per second.

All rows share one forward, so what a row costs depends on how many there are: r is read at the total. The
requests differ in what their nodes promise, and the rows of one batch may well get 0 … 8 nodes each.

>>> table = CostTable(((1, 1.0), (4, 1.3), (8, 2.0)), 0.005)
>>> allocate(table, [Demand((0.9, 0.8, 0.7)), Demand((0.2, 0.1))]).counts
(3, 0)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.errors import ConfigError
from paceline.theory.cost_table import CostTable
from paceline.theory.laws import check_count, check_unit
from paceline.theory.planner import ALONE, StepLoad

Costs = npt.NDArray[np.float64]

# Speeds that differ by less are one speed: rounding must not keep the search going.
_SAME = 1e-12


@dataclass(frozen=True, slots=True)
class Demand:
    """What one request of a forward could use.

    ``paths``: path probabilities of its nodes, falling. ``costs[n - 1]``: what drafting n nodes costs besides
    their rows, in one-row forwards; empty when they are drafted already. ``context``: tokens in the cache.
    """

    paths: tuple[float, ...]
    costs: tuple[float, ...] = ()
    context: int = 0

    def __post_init__(self) -> None:
        for node, path in enumerate(self.paths):
            check_unit(path, f"paths[{node}]")
        if any(low < high for low, high in itertools.pairwise(self.paths)):
            raise ConfigError(f"paths={self.paths!r:.80}: likelier nodes come first")
        if self.costs and len(self.costs) != len(self.paths):
            raise ConfigError(f"{len(self.costs)} costs but {len(self.paths)} paths; give one of each")
        if not all(cost >= 0 for cost in self.costs):
            raise ConfigError(f"costs={self.costs!r:.80}: costs are at least 0")


@dataclass(frozen=True, slots=True)
class Allocation:
    """``counts[i]``: nodes of request i. ``expected_tokens``, ``cost``, ``speed``, ``gain``: of the step."""

    counts: tuple[int, ...]
    expected_tokens: float
    cost: float
    speed: float
    gain: float


def allocate(
    table: CostTable,
    demands: Sequence[Demand],
    *,
    load: StepLoad = ALONE,
    limit: int = 256,
    min_gain: float = 0.0,
) -> Allocation:
    """Return the node counts with the most expected tokens per second of the whole step.

    Each request has its root row as well. ``load``: rows and tokens of requests that cannot draft now, and
    what was spent. ``limit``: most nodes in all. Without a gain of ``min_gain`` nobody drafts.

    Exact for any curve. The best quotient tokens ÷ cost is the largest speed at which tokens - speed * cost
    can still reach 0 (Dinkelbach 1967); for a given speed and total, nodes are taken by what each brings
    beyond its own cost, and every total is tried, since r need not be convex.
    """
    check_count(limit, "limit", 0, "0 drafts nothing")
    search = _Search(table, demands, load, limit)
    counts = (0,) * len(demands)
    best = plain = search.speed(counts)
    while True:
        trial = search.best_counts(best)
        speed = search.speed(trial)
        if speed <= best * (1.0 + _SAME):
            break
        counts, best = trial, speed
    if best <= plain * (1.0 + min_gain):
        counts, best = (0,) * len(demands), plain
    return Allocation(
        counts, search.tokens(counts), search.cost(counts), best, best / plain if plain else 1.0
    )


class _Search:
    """Tokens and costs of allocations, and the best one at a given speed."""

    def __init__(self, table: CostTable, demands: Sequence[Demand], load: StepLoad, limit: int) -> None:
        self._demands = demands
        self._load = load
        self._most = min(limit, sum(len(demand.paths) for demand in demands))
        self._surcharges = [table.row_surcharge(demand.context) for demand in demands]
        self._rows = load.rows + len(demands)
        contexts = (demand.context for demand in demands)
        self._fixed = table.step_cost + load.cost + sum(self._surcharges)
        self._fixed += sum(table.sequence_surcharge(context) for context in contexts)
        self._forward: Costs = np.array([table.r(self._rows + n) for n in range(self._most + 1)])

    def tokens(self, counts: Sequence[int]) -> float:
        """Return the expected tokens of the step."""
        drafted = sum(sum(demand.paths[:n]) for demand, n in zip(self._demands, counts, strict=True))
        return self._load.tokens + len(self._demands) + drafted

    def cost(self, counts: Sequence[int]) -> float:
        """Return what the step costs."""
        own = sum(self._own_cost(index, n) for index, n in enumerate(counts))
        return self._fixed + own + float(self._forward[sum(counts)])

    def speed(self, counts: Sequence[int]) -> float:
        """Return expected tokens per one-row forward."""
        cost = self.cost(counts)
        return self.tokens(counts) / cost if cost > 0 else 0.0

    def best_counts(self, speed: float) -> tuple[int, ...]:
        """Return the counts with the most tokens - ``speed`` * cost."""
        if any(demand.costs for demand in self._demands):
            return self._with_costs(speed)
        return self._drafted(speed)

    def _own_cost(self, index: int, n: int) -> float:
        costs = self._demands[index].costs
        return n * self._surcharges[index] + (costs[n - 1] if costs and n else 0.0)

    def _drafted(self, speed: float) -> tuple[int, ...]:
        """Where each node has its own price, the n best nodes of all are the best allocation of n."""
        worth = [
            (path - speed * surcharge, index)
            for index, (demand, surcharge) in enumerate(zip(self._demands, self._surcharges, strict=True))
            for path in demand.paths
        ]
        worth.sort(key=lambda pair: -pair[0])
        total, best_n, best = 0.0, 0, -speed * float(self._forward[0])
        for n, (value, _) in enumerate(worth[: self._most], start=1):
            total += value
            if total - speed * float(self._forward[n]) > best:
                best, best_n = total - speed * float(self._forward[n]), n
        counts = [0] * len(self._demands)
        for _, index in worth[:best_n]:
            counts[index] += 1
        return tuple(counts)

    def _with_costs(self, speed: float) -> tuple[int, ...]:
        """Costs of starting a draft couple a request's nodes: add request by request, all totals at once."""
        best: Costs = np.full(self._most + 1, -np.inf)
        best[0] = 0.0
        choices: list[npt.NDArray[np.int64]] = []
        for index, demand in enumerate(self._demands):
            before, choice = best, np.zeros(self._most + 1, dtype=np.int64)
            best, tokens = before.copy(), 0.0
            for n, path in enumerate(demand.paths[: self._most], start=1):
                tokens += path
                value = before[: self._most + 1 - n] + (tokens - speed * self._own_cost(index, n))
                better = value > best[n:]
                best[n:][better] = value[better]
                choice[n:][better] = n
            choices.append(choice)
        total = int(np.argmax(best - speed * self._forward))
        counts: list[int] = []
        for choice in reversed(choices):
            counts.append(int(choice[total]))
            total -= counts[-1]
        return tuple(reversed(counts))
