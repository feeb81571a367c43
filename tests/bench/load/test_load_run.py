"""Whole load runs against a small server in this process, in the dialects of the real ones."""

from __future__ import annotations

import io
import itertools
import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.bench.datasets import BenchPrompt
from paceline.bench.environment import describe_environment
from paceline.bench.load import report
from paceline.bench.load.driver import LoadRun, run_load
from paceline.bench.load.endpoint import parse_endpoint
from paceline.bench.load.settings import LoadSettings
from paceline.bench.load.stream import TimedReply
from paceline.cli import main as program
from paceline.errors import EndpointError
from support.openai_server import PIECES, Behaviour, openai_server

PROMPTS = [BenchPrompt(str(n), "chat", (f"Say {n}.", "And then?")) for n in range(5)]
TOKENS = sum(PIECES)


def go(server: Behaviour, api: str = "chat", key: str | None = None, **settings: Any) -> LoadRun:
    asked = {"concurrency": (2,), "requests": 6, "timeout": 60.0, **settings}
    return run_load(parse_endpoint(server.url, api), PROMPTS, LoadSettings(**asked), api_key=key)


def plain(run: LoadRun, **settings: Any) -> dict[str, Any]:
    asked = {"concurrency": (2,), "requests": 6, **settings}
    found = report.as_json(run, LoadSettings(**asked), describe_environment(0, ""))
    parsed: dict[str, Any] = json.loads(json.dumps(found))
    return parsed


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("dialect", ["vllm", "llama.cpp", "paceline"])
def test_servers_that_tell_are_read_in_full(dialect: str, api: str) -> None:
    with openai_server(dialect=dialect) as server:
        run = go(server, api)
    assert run.server.dialect == dialect
    found = plain(run)
    (point,) = found["points"]
    assert (found["kind"], found["server"]["model"]) == ("load", "tiny")
    assert (point["num_requests"], point["num_ok"], point["errors"]) == (6, 6, {})
    assert (point["output_tokens"], point["prompt_tokens"]) == (6 * TOKENS, 6 * 7)
    assert (point["tokens_counted_by"], point["itl_token_from"]) == ("usage", "server counts")
    assert point["chunks_per_reply"] == len(PIECES)
    # The server waits 2 ms before each of four pieces; ten tokens come in them.
    assert point["ttft_s"]["p50"] >= 0.002
    assert point["e2e_s"]["p50"] >= 0.008
    assert point["itl_token_s"]["mean"] == pytest.approx(point["tpot_s"]["mean"], rel=0.5, abs=5e-3)
    assert found["notes"] == [
        "the 5 prompts came more than once: a prefix cache, or a drafter that learns "
        "from replies, answers repeats faster"
    ]


def test_speculation_is_read_where_the_server_counts_it() -> None:
    for dialect in ("vllm", "paceline"):
        with openai_server(dialect=dialect) as server:
            (point,) = plain(go(server))["points"]
        spec = point["speculation"]
        assert (spec["source"], spec["num_drafts"]) == ("metrics", 18)
        assert (spec["num_draft_tokens"], spec["num_accepted_tokens"]) == (54, 36)
        assert (spec["acceptance_rate_at"], spec["tokens_per_step"]) == ([1.0, 1.0, 0.0], 3.0)
    with openai_server(dialect="llama.cpp") as server:
        (point,) = plain(go(server))["points"]
    assert (point["speculation"]["source"], point["speculation"]["tokens_per_step"]) == ("timings", 2.5)
    with openai_server(dialect="vllm", has_metrics=False) as server:
        (point,) = plain(go(server))["points"]
    assert point["speculation"] is None


def test_each_dialect_is_asked_for_the_counts_it_can_give() -> None:
    wanted = {
        "vllm": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        "llama.cpp": {"stream_options": {"include_usage": True}, "timings_per_token": True},
        "other": {"stream_options": {"include_usage": True}},
    }
    for dialect, extras in wanted.items():
        with openai_server(dialect=dialect) as server:
            go(server, requests=1, extra={"ignore_eos": True})
        body = server.bodies[-1]
        fixed = {"model": "tiny", "max_tokens": 128, "temperature": 0.0, "stream": True, "ignore_eos": True}
        assert {key: body[key] for key in body if key != "messages"} == fixed | extras


def test_without_usage_pieces_are_counted_and_that_is_said() -> None:
    with openai_server(dialect="other", tells_usage=False) as server:
        found = plain(go(server))
    (point,) = found["points"]
    assert (point["tokens_counted_by"], point["output_tokens"]) == ("chunks", 6 * len(PIECES))
    assert any("the server tells no usage" in note for note in found["notes"])


def test_with_usage_at_the_end_only_the_tokens_of_a_piece_are_not_known() -> None:
    with openai_server(dialect="other") as server:
        found = plain(go(server))
    (point,) = found["points"]
    assert (point["output_tokens"], point["itl_token_from"]) == (6 * TOKENS, "mean of each reply")
    assert point["itl_token_s"]["mean"] == pytest.approx(point["tpot_s"]["mean"])
    assert any("ITL per token" in note for note in found["notes"])


def test_a_server_that_refuses_stream_options_is_asked_without() -> None:
    with openai_server(dialect="other", strict=True) as server:
        run = go(server)
    assert [("stream_options" in body) for body in server.bodies[:3]] == [True, False, False]
    assert "the server refuses stream_options: no usage is asked for" in run.notes


def test_a_closed_loop_keeps_its_number_in_flight_and_leaves_the_warm_up_out() -> None:
    with openai_server(delay=0.03) as server:
        run = go(server, concurrency=(1, 4), requests=8)
        assert server.in_flight_most == 4
    # One probe, then a warm-up of 1 and of 4.
    assert len(server.bodies) == 1 + 1 + 8 + 4 + 8
    assert [len(point.replies) for point in run.points] == [8, 8]


def test_an_open_loop_sends_when_requests_are_due_whatever_the_server_does() -> None:
    """A slow server has to see more and more requests at once, and the wait belongs to their latency."""
    with openai_server(delay=0.25) as server:
        run = go(server, concurrency=(), rates=(100.0,), arrivals="fixed", requests=20, warm_up=0)
        assert server.in_flight_most >= 3
    (point,) = run.points
    sent = sorted(reply.sent - point.started for reply in point.replies)
    gaps = [later - earlier for earlier, later in itertools.pairwise(sent)]
    assert gaps == pytest.approx([0.01] * 19), "latency counts from when a request was due"


def test_a_duration_bounds_when_requests_start() -> None:
    with openai_server(delay=0.01) as server:
        run = go(server, requests=None, duration=0.4, concurrency=(2,))
    (point,) = run.points
    assert len(point.replies) >= 2
    assert max(reply.sent for reply in point.replies) - point.started < 0.5


def test_sampled_requests_have_seeds_of_their_own() -> None:
    with openai_server() as server:
        go(server, temperature=0.8, seed=40, requests=3, warm_up=0, concurrency=(1,))
    assert [body["seed"] for body in server.bodies] == [40, 41, 42, 43]


def test_only_first_turns_are_asked_for() -> None:
    with openai_server() as server:
        go(server, requests=5, warm_up=0, concurrency=(1,))
    assert [body["messages"] for body in server.bodies[:2]] == [
        [{"role": "user", "content": "Say 0."}],
        [{"role": "user", "content": "Say 1."}],
    ]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("http_500", "http_500"),
        ("html", "not_a_stream"),
        ("not_a_stream", "not_a_stream"),
        ("bad_json", "bad_json"),
        ("error_event", "server_error"),
        ("cut", "cut"),
        ("hang_up", "cut"),
        ("empty", "empty"),
        ("stall", "timeout"),
        ("silent", "timeout"),
    ],
)
def test_failures_in_the_run_are_counted_by_kind(fault: str, kind: str) -> None:
    with openai_server(fault=fault, fail_from=4) as server:
        # A probe, one warm-up and two good replies come first.
        run = go(server, concurrency=(1,), requests=3, timeout=2.0 if kind == "timeout" else 60.0)
    found = plain(run)
    (point,) = found["points"]
    assert point["errors"] == {kind: 1}
    assert (point["num_ok"], point["num_requests"]) == (2, 3)
    assert point["error_examples"][kind]
    assert "failed requests are in no latency; they miss every objective" in found["notes"]


def test_comments_between_events_are_no_failure() -> None:
    with openai_server(fault="comment") as server:
        (point,) = go(server).points
    assert not point.failed


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"models_fault": "html"}, "an HTML page"),
        ({"models_fault": "missing"}, "HTTP 404: 'nothing here'"),
        ({"models_fault": "bad_json"}, "not JSON"),
        ({"models_fault": "other_json"}, "without a list of models"),
        ({"models_fault": "empty"}, "lists no model"),
        ({"models_fault": "slow"}, r"within 0\.5 s \(--timeout\)"),
        ({"key": "secret"}, r"HTTP 401: 'Invalid API Key'.*--api-key"),
        ({"fault": "html"}, "an HTML page where a stream was asked for: '<html>"),
        ({"fault": "http_404"}, "HTTP 404: an HTML page"),
        ({"fault": "http_500"}, "HTTP 500: 'out of memory'"),
        ({"fault": "cut"}, "in the middle of a reply"),
        ({"fault": "half_event"}, "in the middle of a reply"),
        ({"fault": "bad_json"}, "an event that is not JSON"),
        ({"fault": "silent"}, r"within 0\.5 s"),
        ({"fault": "empty"}, "without any text"),
    ],
)
def test_a_bad_endpoint_is_one_clear_error(settings: dict[str, str], says: str) -> None:
    seconds = 0.5 if "0\\.5" in says else 60.0
    with openai_server(**settings) as server, pytest.raises(EndpointError, match=says) as caught:
        go(server, timeout=seconds)
    text = str(caught.value)
    assert text.startswith(server.url)
    assert "expected" in text
    assert "\n" not in text


def test_nobody_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken, so that nobody else gets it, and not listening
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(EndpointError, match=f"{url}/v1/models cannot be reached .*start the server"):
            run_load(parse_endpoint(url), PROMPTS, LoadSettings(concurrency=(1,)))


def test_a_model_the_server_does_not_have() -> None:
    with openai_server() as server, pytest.raises(EndpointError, match=r"does not list model 'huge'.*tiny"):
        run_load(parse_endpoint(server.url), PROMPTS, LoadSettings(concurrency=(1,)), model="huge")


def test_a_named_model_needs_no_list() -> None:
    with openai_server(models_fault="missing") as server:
        run = run_load(
            parse_endpoint(server.url), PROMPTS, LoadSettings(concurrency=(1,), requests=1), model="tiny"
        )
    assert run.server.dialect == "other"


def test_a_server_that_dies_is_not_hammered() -> None:
    """Refusals come back in microseconds: a loop over a second must not count them by the thousand."""
    with openai_server(fault="http_500", fail_from=2) as server:
        with pytest.raises(EndpointError, match="HTTP 500"):
            go(server, concurrency=(1,), requests=None, duration=1.0)
        assert len(server.bodies) < 40


@pytest.fixture
def paceline(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("PACELINE_API_KEY", raising=False)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["paceline", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        status = 0
        try:
            program.main()
        except SystemExit as end:
            status = int(end.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_the_command_prints_tables_and_keeps_the_key_to_itself(paceline: Any, tmp_path: Path) -> None:
    out_file = tmp_path / "load.json"
    with openai_server(dialect="paceline", key="secret") as server:
        status, out, err = paceline(
            *("bench", "--endpoint", server.url, "--concurrency", "1,2", "--requests", "4"),
            *("--goodput", "ttft:1s", "--workload", "chat,code", "--api-key", "secret"),
            *("--price-per-hour", "1", "--json", str(out_file)),
        )
    assert status == 0, err
    for text in ("1 in flight", "2 in flight", "TTFT", "ITL per step", "ttft ≤ 1000 ms", "67%", "(paceline)"):
        assert text in out
    text = out_file.read_text(encoding="utf-8")
    assert "secret" not in text
    found = json.loads(text)
    assert [point["concurrency"] for point in found["points"]] == [1, 2]
    assert found["settings"]["objective"] == {"ttft_s": 1.0}
    assert all(point["goodput"]["share"] == 1.0 for point in found["points"])
    assert all(point["cost_per_million_tokens"] > 0 for point in found["points"])
    roles = {body["messages"][0]["content"] for body in server.bodies}
    assert len(roles) == len(server.bodies) - sum(b == server.bodies[0] for b in server.bodies[1:])


def test_the_command_ends_with_one_line_when_the_endpoint_is_bad(paceline: Any, tmp_path: Path) -> None:
    out_file = tmp_path / "load.json"
    with openai_server(models_fault="html") as server:
        status, _, err = paceline("bench", "--endpoint", server.url, "--rate", "5", "--json", str(out_file))
    assert status == 2
    assert err.strip().splitlines()[-1].startswith(f"paceline: {server.url}/v1/models answers an HTML page")
    assert "Traceback" not in err
    assert not out_file.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give either --concurrency"),
        (("--rate", "1", "--concurrency", "1"), "not both"),
        (("--concurrency", "x"), "numbers separated by commas"),
        (("--concurrency", "1", "--goodput", "ttft"), "needs a time"),
        (("--concurrency", "1", "--api", "responses"), "give one of chat, completions"),
        (("--rate", "1", "--workload", "chats"), "did you mean 'chat'"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(paceline: Any, arguments: tuple[str, ...], says: str) -> None:
    status, _, err = paceline("bench", "--endpoint", "http://127.0.0.1:9", *arguments)
    assert status == 2
    assert says in err


def test_a_late_client_says_so() -> None:
    with openai_server() as server:
        run = go(server, concurrency=(), rates=(50.0,), requests=4)
    (point,) = run.points
    point.late = 10.0
    points = report.summarize_run(run, LoadSettings(rates=(50.0,), requests=4))
    assert any("fell behind" in note for note in report.notes_of(run, points))
    assert all(
        isinstance(reply, TimedReply) and reply.ended <= time.perf_counter() for reply in point.replies
    )
