"""Waits, intervals and predictions, on replies whose figures follow on paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.bench.bootstrap import speed_interval, speedup_interval
from paceline.bench.latency import Latencies, Percentiles
from paceline.bench.memory import peak_bytes, reset_peak
from paceline.bench.predict import predicted_speedup
from paceline.bench.records import Delivery, Measured
from paceline.bench.samples import Samples
from paceline.bench.tables import cost_per_million_tokens
from paceline.errors import ConfigError
from paceline.theory.cost_table import CostTable, DraftCost


def reply(*deliveries: Delivery, drafts: tuple[int, int, tuple[int, ...]] = (0, 0, ())) -> Measured:
    """``drafts``: how many, of how many tokens, and how many reached each depth."""
    count = sum(delivery.num_tokens for delivery in deliveries)
    num_drafts, num_tokens, at = drafts
    seconds = deliveries[-1].seconds
    steps = len(deliveries)
    return Measured(
        tuple(range(count)), "", seconds, steps, num_drafts, num_tokens, 0, (), 0.0, 0.0, deliveries, at
    )


def test_waits_per_token_and_per_step() -> None:
    """One token after 0.5 s, three together 0.3 s later, one 0.1 s later."""
    waits = Latencies.of([reply(Delivery(0.5, 1), Delivery(0.8, 3), Delivery(0.9, 1))])
    assert waits.ttft_s == Percentiles(0.5, 0.5, 0.5, 0.5)
    assert waits.itl_step_s is not None
    assert waits.itl_step_s.mean == pytest.approx(0.2), "a reader waits 0.3 s and 0.1 s"
    assert waits.itl_token_s is not None
    assert (waits.itl_token_s.p50, waits.itl_token_s.mean) == pytest.approx((0.1, 0.1))
    assert waits.tpot_s is not None
    assert waits.tpot_s.mean == pytest.approx(0.1)
    assert waits.request_tokens_per_s is not None
    assert waits.request_tokens_per_s.p50 == pytest.approx(5 / 0.9)


def test_waits_that_do_not_exist() -> None:
    waits = Latencies.of([reply(Delivery(0.5, 1))])
    assert waits.ttft_s is not None
    assert waits.tpot_s is waits.itl_token_s is waits.itl_step_s is None
    assert Latencies.of([Measured((), "", 1.0, 0, 0, 0, 0, (), 0.0, 0.0)]).ttft_s is None


def test_percentiles_of_a_known_row() -> None:
    found = Percentiles.of([float(value) for value in range(101)])
    assert found == Percentiles(50.0, 95.0, 99.0, 50.0)


def samples(seconds: np.ndarray, tokens: float = 10.0) -> Samples:
    many = np.full(seconds.shape, tokens)
    return Samples(tuple(range(len(seconds))), many, seconds, many, many, many, many, seconds)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Prompts of very different length, noise of 10 % each: the true speed-up is 1.5.

    The pigeonhole bootstrap is conservative, so more than 95 % of 150 intervals hold it; fewer than 88 %
    would mean a broken one. The seed is fixed.
    """
    rng = np.random.default_rng(4)
    held, widths = 0, []
    for _ in range(150):
        length = rng.lognormal(0.0, 0.7, size=(12, 1))
        plain, mine = (length * rng.lognormal(0.0, 0.1, size=(12, 5)) for _ in range(2))
        interval = speedup_interval(samples(mine / 1.5), samples(plain), per_token=False)
        assert interval is not None
        held += interval[0] <= 1.5 <= interval[1]
        widths.append(interval[1] - interval[0])
    assert held >= 132
    assert np.mean(widths) < 0.35, "an interval that holds everything says nothing"


def test_intervals_without_noise_and_without_anything_to_tell_it_by() -> None:
    plain, mine = np.full((4, 2), 3.0), np.full((4, 2), 2.0)
    assert speedup_interval(samples(mine), samples(plain), per_token=False) == pytest.approx((1.5, 1.5))
    assert speedup_interval(samples(mine), samples(plain, 5.0), per_token=True) == pytest.approx((3.0, 3.0))
    assert speed_interval(samples(mine)) == pytest.approx((5.0, 5.0))
    one = samples(np.ones((1, 1)))
    assert speedup_interval(one, one, per_token=False) is speed_interval(one) is None
    # A side without replies in one of its repeats: that repeat says nothing, and nothing breaks.
    assert speed_interval(samples(np.array([[0.0], [2.0]]))) is not None


def test_samples_survive_their_json() -> None:
    one = samples(np.array([[1.5, 2.0]]))
    again = Samples.from_json(one.to_json(), "here")
    assert again.units == one.units
    assert np.array_equal(again.seconds, one.seconds)
    for wrong in ({}, {**one.to_json(), "seconds": [[1.0]]}, {**one.to_json(), "tokens": "x"}):
        with pytest.raises(ConfigError, match="here"):
            Samples.from_json(wrong, "here")


COSTS = CostTable(((1, 1.0), (4, 1.6), (8, 2.4)), 0.1, 0.01, {"eagle3": DraftCost(0.2, 0.1, 0.0)})


def test_the_prediction_follows_the_table() -> None:
    """Plain: 0.5 s and 8 steps of 0.11 s. Drafted: 0.5 s and 4 steps with 3 nodes on 3 levels each, of
    (0.1 + 1.6 + 0.5) · 0.1 s."""
    plain = [reply(Delivery(0.5, 1), *(Delivery(1.0, 1) for _ in range(8)))]
    drafted = [reply(Delivery(0.5, 1), *(Delivery(1.0, 2) for _ in range(4)), drafts=(5, 15, (5, 5, 5)))]
    found = predicted_speedup(drafted, plain, "eagle3:head", 1, COSTS)
    assert found == pytest.approx((0.5 + 8 * 0.11) / (0.5 + 4 * 0.22))
    assert predicted_speedup(plain, plain, "none", 1, COSTS) == pytest.approx(1.0)
    # Two at once: r(2) = 1.2 plain, r(8) = 2.4 and drafting twice.
    found = predicted_speedup(drafted, plain, "eagle3", 2, COSTS)
    assert found == pytest.approx((0.5 + 8 * 0.13) / (0.5 + 4 * 0.35))
    assert predicted_speedup(drafted, plain, "ngram", 1, COSTS) is None, "its cost was not measured"


def test_the_prediction_takes_the_drafting_of_auto_as_measured() -> None:
    plain = [reply(Delivery(0.5, 1), *(Delivery(1.0, 1) for _ in range(8)))]
    drafted = reply(Delivery(0.5, 1), *(Delivery(1.0, 2) for _ in range(4)), drafts=(5, 15, (5, 5, 5)))
    found = predicted_speedup([replace(drafted, draft_seconds=0.15)], plain, "auto", 1, COSTS)
    assert found == pytest.approx((0.5 + 8 * 0.11) / (0.5 + 4 * (0.17 + 0.03)))
    # Picking successors is the engine's work: 0.02 · 0.1 s for each of four rows.
    costs = replace(COSTS, draft_costs={"auto": DraftCost(9.0, 9.0, 0.02)})
    found = predicted_speedup([replace(drafted, draft_seconds=0.15)], plain, "auto", 1, costs)
    assert found == pytest.approx((0.5 + 8 * 0.11) / (0.5 + 4 * (0.17 + 0.03 + 0.008)))


def test_the_peak_falls_back_when_memory_is_given_back() -> None:
    """The peak of a whole process stays where the largest drafter put it, whoever runs next."""
    if not reset_peak():
        pytest.skip("this system cannot set the peak back")
    block = np.ones(64 * 2**20, dtype=np.uint8)
    with_block = peak_bytes()
    del block
    assert reset_peak()
    without = peak_bytes()
    assert with_block is not None and without is not None
    assert with_block - without > 48 * 2**20


def test_the_cost_of_a_million_tokens() -> None:
    """At 100 tokens/s an hour yields 360,000 tokens; at 0.36 an hour, a million costs 1."""
    assert cost_per_million_tokens(0.36, 100.0) == pytest.approx(1.0)
