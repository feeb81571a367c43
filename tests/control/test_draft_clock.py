"""The clock finds what drafts cost beyond the table, forgets it, and is not led astray by single steps."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.control.draft_clock import DraftClock
from paceline.drafters.verify_cost import VerifyCost
from paceline.records import NO_SURCHARGE, BatchLoad, Surcharge


def play(
    clock: DraftClock, costs: list[float], true: Surcharge, *, plain: float = 0.003, noise: float = 0.0
) -> None:
    """Let the clock hear steps with drafts of these ``costs`` on a machine with ``true`` surcharges."""
    rng = np.random.default_rng(7)
    for cost in costs:
        clock.hear(plain * (1.0 + true.on(cost)) * float(np.exp(noise * rng.standard_normal())), cost)


def mixed(length: int) -> list[float]:
    """Return costs as requests make them: runs of plain steps, askings and drafts of several sizes."""
    rng = np.random.default_rng(3)
    return [
        float(cost)
        for _ in range(length // 8)
        for cost in (0, 0, 0, *rng.choice([0.06, 0.3, 0.7, 1.2], size=5))
    ]


@pytest.mark.parametrize(
    "true", [NO_SURCHARGE, Surcharge(0.2, 1.8), Surcharge(0.5, 1.0), Surcharge(0.0, 2.5)]
)
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_it_finds_what_drafts_cost(true: Surcharge, noise: float) -> None:
    clock = DraftClock()
    play(clock, mixed(800), true, noise=noise)
    assert clock.surcharge.on(0.5) == pytest.approx(true.on(0.5), rel=0.15 + noise)


def test_drafts_may_be_cheaper_than_the_table_for_a_request_alone() -> None:
    """The profile was of an hour in which rows were quick and arithmetic slow; in the next, drafts cost 0.6
    of it, and a fit that stopped at 0.75 kept drafts short: 0.92 of the speed of a fixed `suffix`. But
    batches that believed it drafted more than paid.
    """
    clock = DraftClock()
    play(clock, mixed(800), Surcharge(0.0, 0.6), noise=0.05)
    assert clock.surcharge.factor == pytest.approx(0.6, abs=0.15)
    assert clock.in_batches.factor == 1.0
    play(clock, mixed(800), Surcharge(0.0, 2.0))
    assert clock.in_batches == clock.surcharge


def test_moods_of_the_machine_do_not_matter_as_long_as_plain_steps_feel_them_too() -> None:
    clock = DraftClock()
    for plain in (0.002, 0.005) * 4:
        play(clock, mixed(160), Surcharge(0.2, 1.5), plain=plain)
    assert clock.surcharge.on(0.5) == pytest.approx(0.95, rel=0.2)


def test_what_a_lone_draft_and_the_plain_step_behind_it_take_longer_is_kept_apart() -> None:
    """Weighed by it, drafts were never begun, so all were lone and dear: chat took 0.95 instead of 0.7."""
    clock = DraftClock()
    play(clock, [0.0] * 8, NO_SURCHARGE)
    for _ in range(60):
        clock.hear(0.003 * (1.5 + 0.4), 0.5)
        clock.hear(0.003 * 1.3, 0.0)
        clock.hear(0.003, 0.0)
    assert clock.surcharge.on(0.5) == 0.5
    assert clock.surcharge.first == pytest.approx(0.7, abs=0.05)
    play(clock, mixed(400), NO_SURCHARGE)
    assert clock.surcharge.first < 0.1


def test_it_knows_nothing_before_it_has_heard_plain_steps() -> None:
    clock = DraftClock()
    play(clock, [0.5] * 40, Surcharge(1.0, 3.0))
    assert clock.surcharge == NO_SURCHARGE
    clock.hear(1.0, 0.0)  # behind a draft: no plain step
    clock.skip()
    clock.hear(1.0, 0.0)  # behind who knows what
    play(clock, [0.5] * 40, Surcharge(1.0, 3.0))
    assert clock.surcharge == NO_SURCHARGE


def test_silence_brings_the_table_back() -> None:
    clock = DraftClock()
    play(clock, mixed(400), Surcharge(0.3, 2.0))
    dear = clock.surcharge.on(0.5)
    play(clock, [0.0] * 3000, NO_SURCHARGE)
    assert 0.5 <= clock.surcharge.on(0.5) < 0.5 + 0.25 * (dear - 0.5)


def test_a_step_that_stood_still_counts_little() -> None:
    calm, disturbed = DraftClock(), DraftClock()
    for clock in (calm, disturbed):
        play(clock, mixed(400), NO_SURCHARGE)
    disturbed.hear(3.0, 0.5)
    disturbed.hear(3.0, 0.0)
    disturbed.hear(3.0, 0.0)
    for clock in (calm, disturbed):
        play(clock, mixed(80), NO_SURCHARGE)
    assert disturbed.surcharge.on(0.5) == pytest.approx(calm.surcharge.on(0.5), abs=0.12)


def test_plain_steps_are_wanted_at_first_and_when_long_none_came() -> None:
    clock = DraftClock()
    assert clock.wants_plain
    play(clock, [0.0] * 20, NO_SURCHARGE)
    assert not clock.wants_plain
    play(clock, [0.5] * 48, NO_SURCHARGE)
    assert clock.wants_plain
    play(clock, [0.0], NO_SURCHARGE)
    assert clock.wants_plain, "a step behind a draft is no plain one"
    play(clock, [0.0], NO_SURCHARGE)
    assert not clock.wants_plain


def test_dear_rows_make_drafts_smaller_and_dear_asking_makes_them_pay_less() -> None:
    cost, paths = VerifyCost((1.0, 1.1, 1.2, 1.3, 1.4, 1.5)), [0.8, 0.6, 0.4, 0.2, 0.1]
    rows = [cost.best(paths, 5, 0.05, BatchLoad(surcharge=Surcharge(0, d))) for d in (1.0, 2.0, 4.0, 9.0)]
    assert [choice.count for choice in rows] == sorted([choice.count for choice in rows], reverse=True)
    assert rows[0].count > rows[2].count > rows[3].count
    asking = [cost.best(paths, 5, 0.05, BatchLoad(surcharge=Surcharge(a))).speed for a in (0.0, 0.3, 2.0)]
    assert asking == sorted(asking, reverse=True)
    assert asking[0] > 1.5 and asking[2] < 1.0, "dear enough, and it is better not to ask"


def test_a_first_plain_step_that_stood_still_does_not_set_the_measure() -> None:
    clock = DraftClock()
    clock.hear(0.003, 0.0)
    clock.hear(0.06, 0.0)  # the first that stands behind a plain one
    play(clock, [0.0] * 3 + [0.5] * 60, Surcharge(0.2, 1.8))
    assert clock.surcharge.on(0.5) == pytest.approx(1.1, rel=0.15)


def test_a_clock_that_stands_still_breaks_nothing() -> None:
    clock = DraftClock()
    play(clock, mixed(80), NO_SURCHARGE, plain=0.0)
    assert clock.surcharge == NO_SURCHARGE


def test_an_excess_that_does_not_depend_on_the_draft_is_asking() -> None:
    clock = DraftClock()
    play(clock, [0.0] * 4, NO_SURCHARGE)
    for _ in range(100):
        for cost in (0.05, 1.0):
            clock.hear(0.003 * 1.4, cost)
    assert clock.surcharge.on(1.0) < 0.95, "at most what the least factor makes of it"


def test_a_plain_step_that_comes_after_many_drafts_counts_for_more() -> None:
    """Plain steps had taken 5.6 ms when a reply began and took 3 ms soon after. Each 48 drafts one was heard
    and moved the mean by 15 %, so drafts seemed to cost half of what the table says, and 82 of 86 steps made
    one: 1.25 of plain's time.
    """
    clock, true = DraftClock(), Surcharge(0.0, 1.6)
    play(clock, [0.0] * 12, true, plain=0.0056)
    for _ in range(3):
        while not clock.wants_plain:
            play(clock, [0.5], true, plain=0.003)
        play(clock, [0.0] * 2, true, plain=0.003)
    play(clock, [0.5] * 48, true, plain=0.003)
    assert clock.surcharge.on(0.5) == pytest.approx(true.on(0.5), rel=0.25)
