"""The node count with the most expected tokens per second, and how far it is from what the planner plans."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.control.default_costs import CONSERVATIVE_COSTS
from paceline.drafters.verify_cost import VerifyCost
from paceline.errors import ConfigError
from paceline.records import ALONE, BatchLoad
from paceline.theory.batch_planner import Demand, allocate
from paceline.theory.cost_table import CostTable
from paceline.theory.planner import StepLoad, best_plan, chain_offer

# SmolLM2-135M on two Zen 4 cores, as profiled; the surcharges are those of a long context.
MEASURED = CostTable(
    (
        *((1, 1.0), (2, 1.041), (3, 1.081), (4, 1.229), (5, 1.453), (6, 1.628), (7, 1.818), (8, 1.949)),
        *((9, 2.305), (10, 2.336), (12, 2.846), (16, 3.644), (24, 5.415), (32, 7.148)),
    ),
    0.00255,
    0.00017,
    context=128,
    per_sequence_token=0.00056,
    per_row_token=0.00017,
)


@given(
    paths=st.lists(st.floats(0, 1), max_size=12).map(lambda paths: sorted(paths, reverse=True)),
    steps=st.lists(st.floats(0, 0.6), min_size=1, max_size=9),
    limit=st.integers(0, 12),
)
def test_the_best_count_is_the_best_of_all(paths: list[float], steps: list[float], limit: int) -> None:
    ratios = [1.0]
    for step in steps:
        ratios.append(ratios[-1] + step)
    cost = VerifyCost(tuple(ratios), min_gain=0.0)
    speeds = [(1 + sum(paths[:n])) / cost.at(n + 1) for n in range(min(limit, len(paths)) + 1)]
    assert speeds[cost.best(paths, limit).count] == pytest.approx(max(speeds))


def test_zero_is_a_legal_choice() -> None:
    dear = VerifyCost((1.0, 2.0, 3.0))
    assert dear.best([0.9, 0.8], 2).count == 0
    free = VerifyCost((1.0, 1.0, 1.0))
    assert free.best([0.9, 0.8], 2).count == 2
    assert free.best([], 2).count == 0


def test_a_gain_below_the_noise_is_left_alone() -> None:
    assert VerifyCost((1.0, 1.0), min_gain=0.02).best([0.01], 1).count == 0
    assert VerifyCost((1.0, 1.0), min_gain=0.0).best([0.01], 1).count == 1


def test_the_curve_goes_on_with_its_mean_slope() -> None:
    cost = VerifyCost((2.0, 3.0, 4.0))
    assert [cost.at(rows) for rows in (1, 2, 3, 4, 7)] == [1.0, 1.5, 2.0, 2.5, 4.0]
    assert VerifyCost((1.0,)).at(3) == 3.0  # nothing measured: rows as dear as forwards


@pytest.mark.parametrize("ratios", [(), (1.0, 0.0), (1.0, float("nan")), (1.0, float("inf"))])
def test_a_curve_that_cannot_be_one_is_refused(ratios: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="verify_cost"):
        VerifyCost(ratios)
    with pytest.raises(ConfigError, match="min_gain=1"):
        VerifyCost((1.0,), min_gain=1)


@pytest.mark.parametrize("context", [0, 700, 4000])
@pytest.mark.parametrize("table", [MEASURED, CONSERVATIVE_COSTS])
@given(
    rates=st.lists(st.floats(0, 1), min_size=1, max_size=7),
    spent=st.floats(0, 1),
    limit=st.integers(0, 7),
    gain=st.sampled_from((0.0, 0.02, 0.04)),
)
def test_alone_a_step_decides_what_the_planner_plans(
    table: CostTable, context: int, rates: list[float], spent: float, limit: int, gain: float
) -> None:
    """The same count, so a regret of 0: a drafted chain, its cost spent, in any context."""
    offer = chain_offer("suffix", rates, is_drafted=True)
    step = 1.0 + table.step_cost  # a step of one row: what VerifyCost counts in
    load = StepLoad(cost=spent * step)
    plan = best_plan(table, [offer], load=load, context=context, limit=limit, min_gain=gain)
    chosen = VerifyCost.of(table, gain).best(offer.paths, limit, spent, ALONE, context=context)
    assert chosen.count == len(plan.nodes)
    plain = best_plan(table, [], context=context).speed
    assert chosen.speed == pytest.approx(plan.speed / plain)


@pytest.mark.parametrize(
    ("batch", "mean", "worst"), [(2, 0.03, 0.15), (4, 0.02, 0.15), (8, 0.01, 0.06), (32, 0.002, 0.02)]
)
@pytest.mark.parametrize("table", [MEASURED, CONSERVATIVE_COSTS])
def test_in_a_batch_requests_one_by_one_come_near_the_best_allocation(
    table: CostTable, batch: int, mean: float, worst: float
) -> None:
    """Regret: speed of the exact allocation ÷ speed of what is decided, one request after another."""
    rng = random.Random(batch)
    regrets = [_regret(table, [_demand(rng) for _ in range(batch)]) for _ in range(100)]
    assert sum(regrets) / len(regrets) <= mean
    assert max(regrets) <= worst
    assert min(regrets) >= -1e-9


def _demand(rng: random.Random) -> Demand:
    """Return seven nodes of a chain as good as chance will have it."""
    level, path, paths = rng.random(), 1.0, []
    for _ in range(7):
        path *= min(1.0, level * rng.uniform(0.7, 1.2))
        paths.append(path)
    return Demand(tuple(paths))


def _regret(table: CostTable, demands: list[Demand]) -> float:
    cost, rows, tokens = VerifyCost.of(table, 0.0), len(demands), float(len(demands))
    for demand in demands:
        count = cost.best(demand.paths, 7, 0.0, BatchLoad(rows, len(demands))).count
        rows += count
        tokens += sum(demand.paths[:count])
    return allocate(table, demands).speed / (tokens / (table.step_cost + table.r(rows))) - 1.0


def test_a_decision_takes_well_under_50_microseconds() -> None:
    cost, paths = VerifyCost.of(MEASURED), [0.9**n for n in range(1, 8)]
    spent = []
    for _ in range(200):
        begin = time.thread_time()
        cost.best(paths, 7, 0.1, ALONE, context=500)
        spent.append(time.thread_time() - begin)
    assert sorted(spent)[100] < 50e-6


def test_long_contexts_make_rows_dearer() -> None:
    """Two drafted rows were taken for 8 % of a step; 700 further tokens in the cache make them 21 %."""
    cost = VerifyCost.of(MEASURED)
    assert cost.best([0.12, 0.08], 2, context=100).count == 2
    assert cost.best([0.12, 0.08], 2, context=3000).count == 0
