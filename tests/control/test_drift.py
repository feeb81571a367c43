"""The fall detector on simulated traffic: what it catches, how fast, and what it leaves alone.

Traffic is made of requests. Each has an acceptance of its own, drawn from a beta law around the mean, so that
positions of one request are alike and the variance between requests is many times the binomial one, as in
real traffic.
"""

from __future__ import annotations

import logging
import math
import re

import numpy as np
import pytest

from paceline.control.acceptance_log import Judged, Tally
from paceline.control.drift import (
    Baseline,
    BaselineLearner,
    DriftOptions,
    FallDetector,
    drift_options,
    measured_baseline,
)
from paceline.control.drift_watch import DriftWatch
from paceline.errors import ConfigError

DEPTH = 7
REQUEST_TOKENS = 128


class Traffic:
    """Requests one after another, told to a watch. ``spread``: sum of the beta law's parameters."""

    def __init__(self, watch: DriftWatch, seed: int, spread: float = 12.0) -> None:
        self.watch = watch
        self.random = np.random.default_rng(seed)
        self.spread = spread
        self.number = 0

    def run(
        self,
        mean: float,
        tokens: int,
        *,
        drafter: str = "head",
        workload: str | None = None,
        temperature: float = 0.0,
        until_alarm: bool = False,
        deeper: float = 1.0,
    ) -> int:
        """Serve until ``tokens`` are out; return how many were. ``deeper``: factor behind the first depth."""
        alarms, out = self.watch.num_alarms, 0
        while out < tokens:
            self.number += 1
            rate = self.random.beta(mean * self.spread, (1 - mean) * self.spread)
            made = 0
            rates = np.full(DEPTH, rate * deeper)
            rates[0] = rate
            kept = np.cumprod(self.random.random((REQUEST_TOKENS, DEPTH)) < rates, axis=1).sum(axis=1)
            for accepted in kept.tolist():
                if made >= REQUEST_TOKENS or out >= tokens:
                    break
                judged = Judged(accepted, accepted < DEPTH)
                self.watch.record(
                    drafter,
                    workload,
                    str(self.number),
                    judged,
                    num_draft_tokens=DEPTH,
                    num_tokens=accepted + 1,
                    temperature=temperature,
                )
                made += accepted + 1
                out += accepted + 1
                if until_alarm and self.watch.num_alarms > alarms:
                    return out
        return out


def is_watching(watch: DriftWatch, drafter: str = "head", workload: str | None = None) -> bool:
    return watch._watched[drafter, workload].fall is not None


@pytest.mark.parametrize("seed", range(5))
def test_a_fall_in_uneven_traffic_is_caught_within_2500_tokens(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """72 % → 25 %, the baseline learnt; docs/drift.md states the bound."""
    watch = DriftWatch(DriftOptions())
    traffic = Traffic(watch, seed)
    traffic.run(0.72, 8000)
    assert is_watching(watch)
    assert watch.num_alarms == 0
    with caplog.at_level(logging.WARNING, "paceline.drift"):
        taken = traffic.run(0.25, 4000, until_alarm=True)
        traffic.run(0.25, 4000)
    assert taken <= 2500
    assert len(watch.alarms) == 1, "one fall is one alarm"
    (record,) = caplog.records
    line = record.getMessage()
    assert re.search(r"'head' fell from \d+% to \d+% .* likely: ", line) and "\n" not in line


@pytest.mark.parametrize("seed", range(3))
def test_a_fall_in_even_traffic_is_caught_within_400_tokens(seed: int) -> None:
    """Requests that are all alike: nearly independent positions, dispersion about 1."""
    watch = DriftWatch(DriftOptions())
    traffic = Traffic(watch, 50 + seed, spread=1e4)
    traffic.run(0.72, 5000)
    assert is_watching(watch)
    assert traffic.run(0.25, 2000, until_alarm=True) <= 400


def test_a_hundred_stationary_runs_raise_no_alarm() -> None:
    """At the default bound of 1e-7 per position, 100 runs of 6,000 tokens (some 5,000 positions) raise a
    false alarm with probability 0.05 at most by the bound; the seeds are fixed, so the outcome is too.
    """
    alarms = 0
    watching = 0
    for seed in range(100):
        watch = DriftWatch(DriftOptions(learn_positions=1000))
        Traffic(watch, 1000 + seed).run(0.6, 6000)
        watching += is_watching(watch)
        alarms += watch.num_alarms
    assert watching >= 95, "runs that are never watched would pass for nothing"
    assert alarms == 0


def test_the_stated_rate_is_not_vacuous() -> None:
    """Negative control: at a rate of 0.02 per position stationary traffic does raise false alarms, and no
    more than the bound allows (200 runs of 200 independent positions at exactly p0: at most 4 per run).
    """
    baseline = Baseline((600_000,), (1_000_000,))
    random, alarms = np.random.default_rng(7), 0
    for _ in range(200):
        detector = FallDetector(baseline, 0.6, 0.02)
        alarms += any(
            detector.add(Judged(int(accepted), not accepted)) for accepted in random.random(200) < 0.6
        )
    assert 3 <= alarms <= 200 * 200 * 0.02


def test_small_falls_and_rises_are_left_alone() -> None:
    watch = DriftWatch(DriftOptions())
    traffic = Traffic(watch, 3)
    traffic.run(0.7, 8000)
    traffic.run(0.62, 6000)
    traffic.run(0.85, 6000)
    assert is_watching(watch) and watch.num_alarms == 0


def test_a_given_baseline_needs_no_learning() -> None:
    baseline = Baseline((2800, 1900, 1300), (4000, 2800, 1900), 2.0)
    watch = DriftWatch(DriftOptions(baseline={"head": baseline}))
    assert Traffic(watch, 1).run(0.2, 4000, until_alarm=True) <= 400
    assert watch.num_alarms == 1


def test_a_baseline_of_a_handful_of_drafts_is_learnt_again(caplog: pytest.LogCaptureFixture) -> None:
    watch = DriftWatch(DriftOptions(baseline={"head": Baseline((7,), (10,))}))
    with caplog.at_level(logging.INFO, "paceline.drift"):
        Traffic(watch, 1).run(0.7, 8000)
    assert "too uncertain" in caplog.text
    assert watch._watched["head", None].fall is not None


def test_the_fallback_takes_new_requests_until_it_is_rearmed() -> None:
    watch = DriftWatch(DriftOptions(fallback="suffix"))
    traffic = Traffic(watch, 2)
    traffic.run(0.7, 8000, workload="code")
    assert watch.in_place_of("head", "code") == "head"
    traffic.run(0.2, 4000, workload="code", until_alarm=True)
    assert watch.in_place_of("head", "code") == "suffix"
    assert watch.in_place_of("head", "chat") == "head", "only the workload that fell"
    assert watch.alarms[0].fallback == "suffix" and "new requests use 'suffix'" in str(watch.alarms[0])
    watch.rearm()
    assert watch.in_place_of("head", "code") == "head"


def test_an_alarm_ends_when_acceptance_is_back_and_the_next_fall_is_another() -> None:
    watch = DriftWatch(DriftOptions())
    traffic = Traffic(watch, 4)
    traffic.run(0.7, 8000)
    traffic.run(0.2, 4000)
    assert watch.is_alarmed("head", None)
    traffic.run(0.7, 6000)
    assert not watch.is_alarmed("head", None)
    traffic.run(0.2, 4000)
    assert watch.num_alarms == 2


@pytest.mark.parametrize(
    ("fall", "cause"),
    [
        ({"temperature": 1.0}, "higher temperature (0.0 before, "),
        ({"deeper": 0.2, "mean": 0.72}, "only later positions fall"),
        ({}, "prompts of another kind"),
    ],
)
def test_causes_follow_from_the_counts(fall: dict[str, float], cause: str) -> None:
    watch = DriftWatch(DriftOptions())
    traffic = Traffic(watch, 5)
    traffic.run(0.72, 8000)
    traffic.run(**({"mean": 0.25, "tokens": 4000, "until_alarm": True} | fall))  # type: ignore[arg-type]
    assert cause in " ".join(watch.alarms[0].causes)


def test_other_workloads_tell_new_prompts_from_a_damaged_head() -> None:
    watch = DriftWatch(DriftOptions())
    traffic = Traffic(watch, 6)
    for workload in ("code", "chat"):
        traffic.run(0.7, 8000, workload=workload)
    traffic.run(0.2, 4000, workload="code", until_alarm=True)
    assert "other workloads of this drafter hold" in " ".join(watch.alarms[0].causes)
    traffic.run(0.2, 4000, workload="chat", until_alarm=True)
    assert "the target's weights" in " ".join(watch.alarms[1].causes)


def test_without_options_it_counts_and_says_nothing() -> None:
    watch = DriftWatch()
    traffic = Traffic(watch, 8)
    traffic.run(0.7, 8000)
    traffic.run(0.1, 4000)
    (series,) = watch.log.series()
    assert watch.num_alarms == 0 and series.total.num_tokens >= 12000


# ---- baselines ----


def test_dispersion_is_that_of_requests() -> None:
    """Independent positions: about 1. Requests of an acceptance of their own: what the beta law says.

    Blocks of 100 positions at rates from beta(6, 6): variance of the mean ÷ binomial = 1 + 99 / 13.
    """
    random = np.random.default_rng(11)
    for spread, expected in ((None, 1.0), (12.0, 1 + 99 / 13)):
        blocks, total = [], Tally()
        for _ in range(400):
            rate = 0.5 if spread is None else random.beta(spread / 2, spread / 2)
            block = Tally()
            for accepted in random.random(100) < rate:
                block.add(Judged(int(accepted), not accepted))
                total.add(Judged(int(accepted), not accepted))
            blocks.append(block)
        raised = 1 + 2 * math.sqrt(2 / 400)
        assert measured_baseline(total, blocks).dispersion == pytest.approx(expected * raised, rel=0.25)


def test_learning_waits_for_requests_not_only_for_positions() -> None:
    learner = BaselineLearner(100)
    for _ in range(400):
        learner.add("one", Judged(1, True))
    assert learner.baseline(0.6) is None, "a single request says nothing of the variance between requests"


def test_a_table_becomes_options() -> None:
    options = drift_options(
        {"fallback": "ngram", "baseline": {"eagle3": {"accepted": [70, 40], "tried": [100, 70]}}}
    )
    assert options.fallback == "ngram"
    assert options.baseline is not None
    assert options.baseline["eagle3"].rate == 110 / 170


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"baseline": 3}, "write tables"),
        ({"baseline": {"eagle3": 3}}, "write a table"),
        ({"baseline": {"eagle3": {"tried": [3]}}}, "needs two lists"),
        ({"baseline": {"eagle3": {"accepted": [4], "tried": [3]}}}, "from 0 to 3"),
        ({"baseline": {"eagle3": {"accepted": [], "tried": []}}}, "one of each per depth"),
        ({"baseline": {"eagle3": {"accepted": [0], "tried": [0]}}}, "nothing was measured"),
        ({"baseline": {"eagle3": {"acepted": [0]}}}, "did you mean 'accepted'?"),
        ({"min_ratio": 1.5}, "min_ratio=1.5"),
        ({"false_alarm_rate": 0}, "false_alarm_rate=0"),
        ({"learn_positions": 3}, "learn_positions=3"),
        ({"fallback": ""}, "fallback=''"),
        ({"windowtokens": 4}, "did you mean 'window_tokens'?"),
    ],
)
def test_bad_tables_are_named(table: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        drift_options(table)
    assert words in str(caught.value)
