"""The allocation of a whole batch against every allocation there is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import ConfigError
from paceline.theory.batch_planner import Demand, allocate
from paceline.theory.cost_table import CostTable, DraftCost
from paceline.theory.planner import StepLoad, best_plan, chain_offer


@st.composite
def tables(draw: st.DrawFn) -> CostTable:
    """Convex curves and others: the curve of a blocked kernel rises in stairs."""
    steps = draw(st.lists(st.sampled_from((0.0, 0.02, 0.1, 0.5, 1.5)), min_size=1, max_size=20))
    verify = tuple(enumerate(itertools.accumulate(steps, initial=1.0), start=1))
    extra = draw(st.sampled_from((0.0, 1e-4)))
    return CostTable(verify, 0.01, draw(st.floats(0, 0.01)), {}, 128, extra, extra)


@st.composite
def demands(draw: st.DrawFn, priced: bool) -> Demand:
    paths = sorted(draw(st.lists(st.floats(0, 1), max_size=4)), reverse=True)
    costs = draw(st.lists(st.floats(0, 0.5), min_size=len(paths), max_size=len(paths))) if priced else ()
    return Demand(tuple(paths), tuple(costs), draw(st.sampled_from((0, 4000))))


loads = st.builds(StepLoad, st.integers(0, 9), st.floats(0, 9), st.floats(0, 2))


def speed_of(table: CostTable, asked: Sequence[Demand], counts: Sequence[int], load: StepLoad) -> float:
    tokens, rows = load.tokens, load.rows
    cost = load.cost + table.step_seconds / table.row_seconds
    for demand, n in zip(asked, counts, strict=True):
        long = max(0, demand.context - table.context)
        tokens += 1 + sum(demand.paths[:n])
        rows += 1 + n
        cost += long * (table.per_sequence_token + (1 + n) * table.per_row_token)
        cost += demand.costs[n - 1] if demand.costs and n else 0.0
    return tokens / (cost + table.r(rows))


@settings(max_examples=60, deadline=None)
@given(st.data(), tables(), st.booleans(), loads, st.integers(0, 12))
def test_no_allocation_is_faster(
    data: st.DataObject, table: CostTable, priced: bool, load: StepLoad, limit: int
) -> None:
    asked = data.draw(st.lists(demands(priced), min_size=1, max_size=3))
    found = allocate(table, asked, load=load, limit=limit)
    everything = itertools.product(*(range(len(demand.paths) + 1) for demand in asked))
    speeds = {c: speed_of(table, asked, c, load) for c in everything if sum(c) <= limit}
    assert found.speed == pytest.approx(max(speeds.values()))
    assert speeds[found.counts] == pytest.approx(found.speed)
    assert found.speed == pytest.approx(found.expected_tokens / found.cost)
    assert found.gain == pytest.approx(found.speed / speeds[(0,) * len(asked)])


@settings(max_examples=25, deadline=None)
@given(tables(), st.lists(st.floats(0, 1), max_size=8), loads)
def test_one_request_is_planned_as_alone(table: CostTable, acceptance: list[float], load: StepLoad) -> None:
    offer = chain_offer("x", acceptance, is_drafted=True)
    one = best_plan(table, [offer], load=load)
    assert allocate(table, [Demand(offer.paths)], load=load).speed == pytest.approx(one.speed)


def test_a_full_batch_drafts_less_and_only_the_sure() -> None:
    """Up to 8 rows are nearly free, each one behind costs 0.3: 32 requests draft nothing, 4 do a little."""
    curve = tuple((m, 1.0 + 0.05 * (m - 1) if m <= 8 else 1.35 + 0.3 * (m - 8)) for m in range(1, 33))
    table = CostTable(curve, 0.005, draft_costs={"suffix": DraftCost(0.0)})
    mixed = [Demand((0.9, 0.8, 0.7, 0.6)), Demand((0.3, 0.1)), Demand((0.9, 0.5)), Demand((0.2,))]
    few = allocate(table, mixed)
    assert few.counts[0] > 0
    assert few.counts[3] == 0
    assert sum(few.counts) == 4  # eight rows
    assert allocate(table, mixed * 8).counts == (0,) * 32
    assert allocate(table, []).counts == ()


def test_stairs_are_climbed_as_a_whole() -> None:
    """On a curve that jumps and is then flat no single node pays, and four together do: greedy would stop."""
    table = CostTable(((1, 1.0), (2, 2.0), (3, 2.0), (4, 2.0), (5, 2.0)), 0.005)
    assert allocate(table, [Demand((0.9, 0.9, 0.9, 0.9))]).counts == (4,)
    assert allocate(table, [Demand((0.9,))]).counts == (0,)


def test_drafting_nothing_needs_no_gain() -> None:
    table = CostTable(((1, 1.0), (2, 1.0)), 0.005)
    assert allocate(table, [Demand((0.015,))], min_gain=0.02).counts == (0,)
    assert allocate(table, [Demand((0.015,))]).counts == (1,)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Demand((0.2, 0.3)), "likelier nodes come first"),
        (lambda: Demand((1.2,)), "paths"),
        (lambda: Demand((0.5,), (0.1, 0.2)), "2 costs but 1 paths"),
        (lambda: Demand((0.5,), (-0.1,)), "at least 0"),
        (lambda: allocate(CostTable(((1, 1.0),), 1.0), [], limit=-1), "limit is -1"),
    ],
)
def test_what_cannot_be_allocated_is_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()
