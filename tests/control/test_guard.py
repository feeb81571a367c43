"""The guard: whatever a drafter does, a request loses no more than was promised, by the cost table."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.control.default_costs import CONSERVATIVE_COSTS
from paceline.control.guard import (
    CAP,
    LOAN,
    LONGEST_WAIT,
    MOST_SAVED,
    PATIENCE,
    RATE,
    START,
    Guard,
    Savings,
)
from paceline.records import ALONE, BatchLoad, Surcharge
from paceline.theory.cost_table import CostTable, DraftCost
from support.request_play import always, play_guarded, with_rate

FLAT = CostTable(((1, 1.0), (8, 1.3), (32, 3.0)), 0.01, draft_costs={"scripted": DraftCost(0.05, 0.01)})
STEEP = CostTable(((1, 1.0), (8, 8.0)), 0.01, draft_costs={"scripted": DraftCost(0.5)})
TABLES = [CONSERVATIVE_COSTS, FLAT, STEEP]
DEAR = CostTable(((1, 1.0), (8, 2.2)), 0.01, draft_costs={"scripted": DraftCost(0.7)})
LOADS = [ALONE, BatchLoad(8, 8), BatchLoad(32, 32), BatchLoad(300, 4)]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("load", LOADS)
def test_a_drafter_that_is_always_wrong_costs_three_per_cent_at_most(
    table: CostTable, load: BatchLoad
) -> None:
    """And from token 64 on, half of that."""
    played = play_guarded(table, always(False), num_tokens=256, load=load)
    assert played.slowdown <= 1.03
    late = played.costs[64:]
    assert len(late) / sum(late) >= 0.97


def test_refused_again_and_again_it_is_tried_ever_more_rarely() -> None:
    """While it spent its whole income on trials, an always-wrong drafter took 4 % of the time, half of it
    for the Python around the trials, which no table prices.
    """
    played = play_guarded(CONSERVATIVE_COSTS, always(False), num_tokens=512)
    late = [nodes for nodes in played.drafted[200:] if nodes]
    assert set(late) == {1}
    assert len(late) <= 312 // LONGEST_WAIT + 1
    assert sum(map(bool, played.drafted)) <= PATIENCE + 5 + 512 // LONGEST_WAIT


@pytest.mark.parametrize("table", [CONSERVATIVE_COSTS, FLAT])
def test_a_drafter_that_is_always_right_is_let_draft(table: CostTable) -> None:
    played = play_guarded(table, always(True), num_tokens=256)
    assert played.slowdown < 0.5
    assert played.drafted[-1] == 7


@pytest.mark.parametrize("table", [CONSERVATIVE_COSTS, FLAT])
@pytest.mark.parametrize("load", LOADS[:3])
def test_one_that_turns_bad_is_stopped_within_64_tokens(table: CostTable, load: BatchLoad) -> None:
    """It may spend a little of what it gained before, then it is silent; the whole stays ahead of plain.

    (In a batch of 32 even right drafts gain next to nothing.)
    """
    played = play_guarded(table, lambda position, _: position < 300, num_tokens=700, load=load)
    assert played.slowdown < (1.03 if load.num_requests == 32 else 1.0)
    late = played.costs[300 + 64 :]
    assert len(late) / sum(late) >= 0.97


def test_one_that_turns_good_is_found_by_the_probes() -> None:
    played = play_guarded(CONSERVATIVE_COSTS, lambda position, _: position >= 200, num_tokens=400)
    late = played.costs[200 + 64 :]
    assert len(late) / sum(late) > 2.0


@settings(max_examples=60, deadline=None)
@given(
    rates=st.lists(st.floats(0, 1), min_size=1, max_size=5),
    seed=st.integers(0, 1000),
    nodes=st.integers(1, 8),
    table=st.sampled_from(TABLES),
    load=st.sampled_from(LOADS),
    num_tokens=st.integers(1, 300),
)
def test_the_bound_holds_whatever_acceptance_does(
    rates: list[float], seed: int, nodes: int, table: CostTable, load: BatchLoad, num_tokens: int
) -> None:
    """modelled time ≤ (1 + RATE) · plain time + START, at every moment, for acceptance that drifts."""
    truth = with_rate(lambda position: rates[position // 60 % len(rates)], seed)
    guard, spent, committed = Guard(table, "scripted"), 0.0, 0
    while committed < num_tokens:
        count = guard.room(nodes, load)
        kept = 0
        while kept < count and truth(committed, kept + 1):
            kept += 1
        spent += 1.0 + guard.settle(load, count, guard.drafting(count) if count else 0.0, kept + 1)
        committed += kept + 1
        assert spent <= (1.0 + RATE) * committed + START + 1e-9
        assert -1e-9 <= guard.balance <= CAP


def test_the_time_of_a_drafter_counts_before_it_is_asked() -> None:
    """One that costs more than was lent is never asked, however right it might be."""
    dear = CostTable(((1, 1.0), (8, 1.1)), 0.01, draft_costs={"scripted": DraftCost(2.0)})
    guard = Guard(dear, "scripted")
    assert guard.room(7, ALONE) == 0
    assert guard.is_silenced
    assert Guard(dear, "unknown").room(7, ALONE) == 7


def test_in_a_batch_a_refused_row_costs_more_plain_tokens() -> None:
    guard = Guard(CONSERVATIVE_COSTS, "x")
    costs = [guard.cost(BatchLoad(n, n), 1, 0.0) for n in (1, 2, 8, 32)]
    assert costs == sorted(costs)
    assert costs[-1] > 10 * costs[0]


def test_a_first_draft_is_booked_with_what_the_clock_heard_of_such() -> None:
    table, load = CostTable(((1, 1.0), (8, 2.4)), 0.003), BatchLoad(surcharge=Surcharge(0.1, 2.0, 0.3))
    guard = Guard(table, "scripted")
    later = guard.settle(load, 3, 0.0, 1)
    first = guard.settle(load, 3, 0.0, 1, is_first=True)
    assert later == pytest.approx(0.1 + 2.0 * 0.6)
    assert first == pytest.approx(later + 0.3)
    assert guard.settle(load, 0, 0.0, 1, is_first=True) == 0.0, "nothing was asked"
    assert guard.balance == pytest.approx(START + 3 * RATE - later - first)


def test_what_earlier_requests_gained_pays_for_more_than_one_attempt() -> None:
    """Seven refused nodes took the whole loan, so that one unlucky first draft kept a request of 256 tokens
    silent to its end: chat ran at 1.21 times the speed of plain decoding where it could run at 1.32.
    """
    from_third = lambda position, _: position >= 2  # noqa: E731
    alone = play_guarded(DEAR, from_third, num_tokens=100)
    savings = Savings()
    play_guarded(DEAR, always(True), num_tokens=200, savings=savings)
    helped = play_guarded(DEAR, from_third, num_tokens=100, savings=savings)
    assert alone.slowdown > 0.9
    assert helped.slowdown < 0.5


def test_savings_are_bounded_and_a_drafter_that_turns_bad_spends_no_more() -> None:
    """From the last good request on, wrong drafts cost what was saved and each request's own, and no more."""
    savings = Savings()
    for _ in range(20):
        play_guarded(CONSERVATIVE_COSTS, always(True), num_tokens=100, savings=savings)
    assert savings.balance == MOST_SAVED
    played = [
        play_guarded(CONSERVATIVE_COSTS, always(False), num_tokens=100, savings=savings) for _ in range(20)
    ]
    lost = sum(sum(one.costs) - len(one.costs) for one in played)
    assert lost <= MOST_SAVED + 20 * (START + RATE * 100) + 1e-9
    assert max(sum(one.costs) for one in played) <= 100 * (1.0 + RATE) + START + LOAN + 1e-9


@settings(max_examples=40, deadline=None)
@given(
    rates=st.lists(st.floats(0, 1), min_size=1, max_size=12),
    seed=st.integers(0, 1000),
    table=st.sampled_from(TABLES),
    load=st.sampled_from(LOADS),
)
def test_the_bound_over_all_requests_is_that_of_each_alone(
    rates: list[float], seed: int, table: CostTable, load: BatchLoad
) -> None:
    """Savings move gains from one request to the next; they create none."""
    savings, spent, tokens = Savings(), 0.0, 0
    for number, rate in enumerate(rates, start=1):
        truth = with_rate(lambda _, rate=rate: rate, seed + number)  # type: ignore[misc]
        played = play_guarded(table, truth, num_tokens=96, load=load, savings=savings)
        spent += sum(played.costs)
        tokens += len(played.costs)
        assert spent <= (1.0 + RATE) * tokens + START * number + 1e-9
        assert 0.0 <= savings.balance <= MOST_SAVED


def test_a_batch_shares_the_savings() -> None:
    """Eight requests that each take the whole for theirs would spend it eight times in one step."""
    savings = Savings()
    savings.put(LOAN)
    load = BatchLoad(8, 8)
    guards = [Guard(FLAT, "scripted", savings) for _ in range(8)]
    means = [guard.balance + guard._loan(load) for guard in guards]
    assert sum(means) == pytest.approx(8 * START + LOAN)


def test_a_debt_is_paid_back_out_of_gains() -> None:
    savings = Savings()
    savings.put(20.0)
    guard = Guard(FLAT, "scripted", savings)
    while guard.owed < 3.0:
        guard.earn(1, -1.0)
    left = savings.balance
    guard.earn(1, 2 * CAP)
    assert guard.owed == 0.0
    assert savings.balance > left
