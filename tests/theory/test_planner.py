"""The planner against every node set there is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import ConfigError
from paceline.theory.cost_table import CostTable, DraftCost
from paceline.theory.planner import (
    ALONE,
    ROOT,
    Offer,
    StepLoad,
    best_plan,
    chain_offer,
    tree_offer,
)

NAMES = ("eagle3", "suffix")
costs = st.floats(0, 0.5)
unit = st.floats(0, 1)


@st.composite
def tables(draw: st.DrawFn) -> CostTable:
    """Curves of any rising shape: flat, steep, with steps."""
    steps = draw(st.lists(st.sampled_from((0.0, 0.02, 0.1, 0.5, 1.5)), min_size=1, max_size=12))
    verify = tuple(enumerate(itertools.accumulate(steps, initial=1.0), start=1))
    drafts = {name: DraftCost(draw(costs), draw(costs), draw(costs)) for name in NAMES}
    extra = draw(st.sampled_from((0.0, 1e-4)))
    return CostTable(verify, 0.01, draw(st.floats(0, 0.01)), drafts, 128, extra, extra)


@st.composite
def offers(draw: st.DrawFn) -> Offer:
    parents: list[int] = []
    paths: list[float] = []
    for node in range(draw(st.integers(0, 7))):
        parent = draw(st.integers(ROOT, node - 1))
        parents.append(parent)
        paths.append((1.0 if parent == ROOT else paths[parent]) * draw(unit))
    return Offer(draw(st.sampled_from(NAMES)), tuple(paths), tuple(parents), draw(st.booleans()))


loads = st.builds(StepLoad, st.integers(0, 9), st.floats(0, 9), st.floats(0, 2))


def closed_sets(parents: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield each set of nodes that holds its own parents."""
    for size in range(1, len(parents) + 1):
        for nodes in itertools.combinations(range(len(parents)), size):
            if all(parents[node] in (ROOT, *nodes) for node in nodes):
                yield nodes


def speed_of(
    table: CostTable, offer: Offer | None, nodes: tuple[int, ...], load: StepLoad, context: int
) -> float:
    """The definition, written down once more."""
    tokens, cost = load.tokens + 1.0, load.cost + table.step_seconds / table.row_seconds
    long = max(0, context - table.context)
    cost += table.r(load.rows + 1 + len(nodes)) + long * table.per_sequence_token
    cost += (1 + len(nodes)) * long * table.per_row_token
    if offer is not None and nodes:
        tokens += sum(offer.paths[node] for node in nodes)
        if not offer.is_drafted:
            cost += table.draft(offer.drafter, max(offer.depths[node] for node in nodes), len(nodes))
    return tokens / cost


@settings(max_examples=60, deadline=None)
@given(tables(), st.lists(offers(), max_size=3), loads, st.sampled_from((0, 5000)), st.integers(0, 8))
def test_no_drafter_and_no_node_set_is_faster(
    table: CostTable, offered: list[Offer], load: StepLoad, context: int, limit: int
) -> None:
    plan = best_plan(table, offered, load=load, context=context, limit=limit)
    speeds = [speed_of(table, None, (), load, context)]
    for offer in offered:
        sets = (nodes for nodes in closed_sets(offer.parents) if len(nodes) <= limit)
        speeds.extend(speed_of(table, offer, nodes, load, context) for nodes in sets)
    assert plan.speed == pytest.approx(max(speeds))
    assert plan.gain == pytest.approx(max(speeds) / speeds[0])
    matching = [offer for offer in offered if offer.drafter == plan.drafter]
    if plan.nodes:
        assert any(
            set(plan.nodes) <= set(range(len(offer.parents)))
            and speed_of(table, offer, plan.nodes, load, context) == pytest.approx(plan.speed)
            for offer in matching
        )
    else:
        assert plan.drafter == "none"


@settings(max_examples=30, deadline=None)
@given(
    tables(),
    st.lists(st.lists(st.floats(0, 0.33), min_size=1, max_size=3), min_size=1, max_size=3),
    st.integers(1, 5),
    loads,
)
def test_a_tree_by_ranks_leaves_no_better_tree_out(
    table: CostTable, acceptance: list[list[float]], limit: int, load: StepLoad
) -> None:
    """The full tree of all ranks holds every tree there is; the small offer must plan as well as it does."""
    full: list[tuple[int, ...]] = []
    for levels in range(1, len(acceptance) + 1):
        full.extend(itertools.product(*(range(len(rates)) for rates in acceptance[:levels])))
    index = {node: position for position, node in enumerate(full)}
    paths: list[float] = []
    for node in full:
        above = paths[index[node[:-1]]] if len(node) > 1 else 1.0
        paths.append(above * sorted(acceptance[len(node) - 1], reverse=True)[node[-1]])
    parents = tuple(index[node[:-1]] if len(node) > 1 else ROOT for node in full)
    whole = best_plan(table, [Offer("eagle3", tuple(paths), parents)], load=load, limit=limit)
    small = best_plan(table, [tree_offer("eagle3", acceptance, limit)], load=load, limit=limit)
    assert small.speed == pytest.approx(whole.speed)


def test_the_plan_follows_costs_and_batch() -> None:
    curve = tuple((m, 1.0 + 0.05 * (m - 1) if m <= 8 else 1.35 + 0.3 * (m - 8)) for m in range(1, 33))
    table = CostTable(curve, 0.005, draft_costs={"eagle3": DraftCost(0.02, 0.03), "suffix": DraftCost(0.01)})
    sure, weak = [0.9] * 7, [0.3] * 7
    alone = best_plan(table, [chain_offer("eagle3", sure)])
    assert alone.depth == len(alone.nodes) == 7
    # Eight rows are there already: each node costs what the steep part of the curve says.
    crowded = best_plan(table, [chain_offer("eagle3", weak)], load=StepLoad(rows=8, tokens=8.0))
    assert crowded.nodes == ()
    assert crowded.drafter == "none"
    assert crowded.gain == 1.0
    # The cheaper drafter wins while it is as often right.
    both = [chain_offer("eagle3", sure), chain_offer("suffix", sure)]
    assert best_plan(table, both).drafter == "suffix"
    assert best_plan(table, both).tokens_per_second(table) == pytest.approx(
        best_plan(table, both).speed / 0.005
    )


def test_a_gain_below_the_bar_is_left_alone() -> None:
    table = CostTable(((1, 1.0), (2, 1.0)), 0.005, draft_costs={"suffix": DraftCost(0.0)})
    offer = [chain_offer("suffix", [0.015])]
    assert best_plan(table, offer).nodes == (0,)
    assert best_plan(table, offer, min_gain=0.02).nodes == ()


def test_what_was_spent_is_paid_in_any_case() -> None:
    """A drafted node is judged by its row alone: the time that drafting took is gone either way."""
    table = CostTable(((1, 1.0), (2, 1.4)), 0.005, draft_costs={"eagle3": DraftCost(0.3)})
    assert best_plan(table, [chain_offer("eagle3", [0.5])]).nodes == ()
    spent = StepLoad(cost=0.3)
    assert best_plan(table, [chain_offer("eagle3", [0.5], is_drafted=True)], load=spent).nodes == (0,)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Offer("x", (0.5,), ()), "1 paths but 0 parents"),
        (lambda: Offer("x", (0.5, 0.6), (-1, 0)), "more than 0.5 of its parent"),
        (lambda: Offer("x", (0.5,), (0,)), "parents come first"),
        (lambda: Offer("x", (1.5,), (-1,)), "paths"),
        (lambda: chain_offer("x", [0.5, float("nan")]), "acceptance"),
        (lambda: tree_offer("x", [[0.7, 0.7]], 4), "sums to 1.4"),
        (lambda: StepLoad(rows=-1), "rows is -1"),
        (lambda: StepLoad(tokens=-1.0), "tokens=-1"),
        (lambda: best_plan(CostTable(((1, 1.0),), 1.0), [chain_offer("x", [0.5])]), "'x' was not measured"),
        (lambda: best_plan(CostTable(((1, 1.0),), 1.0), [], limit=-1), "limit is -1"),
    ],
)
def test_what_cannot_be_planned_is_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


def test_an_empty_offer_is_no_draft() -> None:
    table = CostTable(((1, 1.0),), 0.005, draft_costs={"eagle3": DraftCost(0.0)})
    for offer in (chain_offer("eagle3", []), tree_offer("eagle3", [], 5), tree_offer("eagle3", [[]], 5)):
        assert best_plan(table, [offer], load=ALONE).nodes == ()
