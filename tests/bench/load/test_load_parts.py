"""The parts of the load bench that need no server: addresses, limits, arrivals, counters, arithmetic."""

from __future__ import annotations

import itertools
import math

import pytest

from paceline.bench.load.arrivals import arrival_times
from paceline.bench.load.counters import from_counters, from_timings, parse_metrics
from paceline.bench.load.driver import PointRun
from paceline.bench.load.endpoint import parse_endpoint
from paceline.bench.load.failures import ReplyError
from paceline.bench.load.goodput import parse_objective
from paceline.bench.load.settings import LoadSettings, parse_extra
from paceline.bench.load.stream import Chunk, TimedReply
from paceline.bench.load.summary import latency, measures_of, step_gaps, summarize_point, token_gaps
from paceline.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "url", "root"),
    [
        ("http://h:8000", "http://h:8000/v1/chat/completions", "http://h:8000"),
        ("h:8000/", "http://h:8000/v1/chat/completions", "http://h:8000"),
        ("https://h/v1/", "https://h/v1/chat/completions", "https://h"),
        ("http://h/proxy/v1", "http://h/proxy/v1/chat/completions", "http://h/proxy"),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions", "http://h"),
        ("http://h/v1/completions", "http://h/v1/completions", "http://h"),
        ("http://[::1]:80", "http://[::1]:80/v1/chat/completions", "http://[::1]:80"),
    ],
)
def test_addresses_are_taken_in_every_form_people_have(text: str, url: str, root: str) -> None:
    endpoint = parse_endpoint(text)
    assert (endpoint.url, endpoint.root) == (url, root)


def test_the_interface_is_a_choice_for_short_addresses() -> None:
    assert parse_endpoint("http://h", "completions").url == "http://h/v1/completions"


@pytest.mark.parametrize("text", ["", "ftp://h", "http://", "http://h:port", "http://h?x=1", "http://h#top"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--endpoint"):
        parse_endpoint(text)


def test_limits_are_read_with_their_units() -> None:
    objective = parse_objective("ttft:200ms, tpot:0.05s,e2e:2s")
    assert objective.limits == {"ttft_s": 0.2, "tpot_s": 0.05, "e2e_s": 2.0}
    assert str(objective) == "ttft ≤ 200 ms, tpot ≤ 50 ms, e2e ≤ 2000 ms"
    assert objective.is_met({"ttft_s": 0.2, "tpot_s": None, "e2e_s": 1.0})
    assert not objective.is_met({"ttft_s": 0.21, "tpot_s": 0.01, "e2e_s": 1.0})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("tpto:50ms", "did you mean 'tpot'"),
        ("ttft:200", "with its unit"),
        ("ttft:0ms", "with its unit"),
        ("ttft:1.2.3s", "with its unit"),
        ("ttft:1s,ttft:2s", "twice"),
    ],
)
def test_limits_that_mean_nothing_are_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_objective(text)


def test_arrivals_repeat_with_their_seed_and_have_the_rate_asked_for() -> None:
    times = list(arrival_times(50.0, "poisson", 7, 4000, None))
    assert times == list(arrival_times(50.0, "poisson", 7, 4000, None))
    assert times != list(arrival_times(50.0, "poisson", 8, 4000, None))
    gaps = [b - a for a, b in itertools.pairwise([0.0, *times])]
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    # Exponential gaps: the deviation equals the mean. The seed is fixed, so nothing here is left to chance.
    assert mean == pytest.approx(0.02, rel=0.05)
    assert deviation == pytest.approx(mean, rel=0.06)


def test_arrivals_end_with_their_number_or_their_time() -> None:
    assert list(arrival_times(4.0, "fixed", 0, 3, None)) == [0.0, 0.25, 0.5]
    assert list(arrival_times(4.0, "fixed", 0, None, 1.0)) == [0.0, 0.25, 0.5, 0.75]
    assert all(time < 2.0 for time in arrival_times(20.0, "poisson", 0, None, 2.0))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "not neither"),
        ({"concurrency": (1,), "rates": (1.0,)}, "not both"),
        ({"concurrency": (0,)}, "concurrency=0"),
        ({"rates": (0.0,)}, "rate=0"),
        ({"rates": (math.nan,)}, "rate=nan"),
        ({"rates": (1.0,), "requests": 3, "duration": 1.0}, "not both"),
        ({"rates": (1.0,), "arrivals": "poison"}, "did you mean 'poisson'"),
        ({"concurrency": (1,), "duration": 0.0}, "duration=0"),
        ({"concurrency": (1,), "extra": {"stream": False}}, "--extra-body sets 'stream'"),
    ],
)
def test_settings_that_contradict_are_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        LoadSettings(**settings)  # type: ignore[arg-type]


def test_what_is_put_into_every_request_is_an_object() -> None:
    assert parse_extra('{"ignore_eos": true}') == {"ignore_eos": True}
    for text in ("[1]", "{", "7"):
        with pytest.raises(ConfigError, match="--extra-body"):
            parse_extra(text)


METRICS = """# HELP vllm:spec_decode_num_drafts_total Number of drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 5.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.76e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 45.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 30.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 15.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="10"} 3.0
vllm:num_requests_running{engine="0"} NaN
broken line of 3 words
"""


def test_counters_are_summed_over_engines_and_named_by_depth() -> None:
    counters = parse_metrics(METRICS)
    assert counters is not None
    assert (counters.num_drafts, counters.num_draft_tokens, counters.num_accepted_tokens) == (15, 45, 30)
    assert counters.accepted_at == {0: 15.0, 10: 3.0}
    ours = METRICS.replace("vllm:", "paceline:").replace("_total{", "{")
    assert parse_metrics(ours) == counters
    assert parse_metrics(METRICS + ours) == counters, "one server's counts under two names are one count"


@pytest.mark.parametrize("text", ["", "<html>", "llamacpp:tokens_predicted_total 5\n", "other:num_drafts 1"])
def test_a_server_that_counts_no_drafts_has_no_counters(text: str) -> None:
    assert parse_metrics(text) is None


def test_counters_are_the_difference_of_two_readings() -> None:
    before = parse_metrics(METRICS)
    after = parse_metrics(
        METRICS.replace(" 10.0", " 20.0").replace(" 45.0", " 75.0").replace(" 30.0", " 45.0")
    )
    spec = from_counters(before, after)
    assert spec is not None
    assert (spec.num_drafts, spec.num_draft_tokens, spec.num_accepted_tokens) == (10, 30, 15)
    assert (spec.acceptance_rate, spec.tokens_per_step) == (0.5, 2.5)
    assert from_counters(after, before) is None, "a server that was restarted in between counts from nothing"
    assert from_counters(None, after) is None
    idle = from_counters(before, before)
    assert idle is not None
    assert (idle.acceptance_rate, idle.tokens_per_step, idle.acceptance_rate_at) == (None, None, None)


def test_llama_cpps_timings_give_tokens_per_step() -> None:
    spec = from_timings(drafted=9, accepted=6, tokens=10)
    assert (spec.tokens_per_step, spec.acceptance_rate) == (2.5, 6 / 9)


def reply(
    *chunks: tuple[float, int | None], tokens: int, sent: float = 0.0, ended: float | None = None
) -> TimedReply:
    pieces = tuple(Chunk(at, count) for at, count in chunks)
    return TimedReply(
        sent, pieces[-1].at if ended is None else ended, pieces, tokens, 7, "usage", "stop", None, None
    )


def test_latencies_of_a_reply_are_those_of_vllm() -> None:
    one = reply((1.5, 1), (1.8, 3), (2.0, 2), tokens=6, sent=1.0, ended=2.0)
    assert measures_of(one) == {"ttft_s": 0.5, "tpot_s": pytest.approx(0.1), "e2e_s": 1.0}
    assert step_gaps(one) == pytest.approx([0.3, 0.2])
    assert token_gaps(one) == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.1])


def test_tokens_that_come_with_the_first_one_have_no_gap() -> None:
    assert token_gaps(reply((1.0, 3), (1.2, 1), tokens=4)) == pytest.approx([0.2])


def test_gaps_of_tokens_are_known_without_counts_only_when_each_piece_is_a_token() -> None:
    assert token_gaps(reply((1.0, None), (1.2, None), tokens=2)) == pytest.approx([0.2])
    assert token_gaps(reply((1.0, None), (1.2, None), tokens=5)) is None


def test_one_token_has_no_tpot() -> None:
    assert measures_of(reply((1.0, 1), tokens=1))["tpot_s"] is None


def test_percentiles_lie_between_ranks() -> None:
    values = latency([4.0, None, 1.0, 2.0, 3.0])
    assert values is not None
    assert (values["p50"], values["mean"]) == (2.5, 2.5)
    assert values["p95"] == pytest.approx(3.85)
    assert latency([None]) is None


def test_a_point_adds_up() -> None:
    point = PointRun(2, None, started=0.0, ended=4.0)
    point.replies = [reply((0.1, 1), (0.5, 3), tokens=4), reply((0.6, 1), (2.0, 5), tokens=6, sent=0.5)]
    point.failed = [ReplyError("cut", "first"), ReplyError("http_500", "x"), ReplyError("cut", "second")]
    summary = summarize_point(point, parse_objective("ttft:200ms,tpot:200ms"), price_per_hour=3.6)
    assert (summary.num_requests, summary.num_ok, summary.output_tokens) == (5, 2, 10)
    assert (summary.tokens_per_s, summary.requests_per_s) == (2.5, 0.5)
    assert summary.errors == {"cut": 2, "http_500": 1}
    assert summary.error_examples == {"cut": "first", "http_500": "x"}
    assert summary.goodput is not None
    # Only the first reply meets both limits; the failed ones count against the share.
    assert (summary.goodput.requests_per_s, summary.goodput.share) == (0.25, 0.2)
    assert summary.cost_per_million_tokens == pytest.approx(0.001 / 2.5 * 1e6)
    assert summary.prompt_tokens == 14
    assert summary.speculation is None


def test_the_weakest_way_of_counting_is_the_one_told() -> None:
    point = PointRun(1, None, ended=1.0)
    counted = reply((0.1, None), (0.2, None), tokens=7)
    point.replies = [counted, TimedReply(0.0, 0.2, counted.chunks, 2, None, "chunks", "stop", None, None)]
    summary = summarize_point(point)
    assert summary.tokens_counted_by == "chunks"
    assert summary.prompt_tokens is None
    assert summary.itl_token_from == "mean of each reply"
