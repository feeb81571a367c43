"""Keys, queues, deadlines, failures of the engine, and the end of a server."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline import LLM
from paceline.errors import ConfigError
from paceline.server import logs
from paceline.server.settings import ServerSettings
from support.served import Brake, Served, serving

BODY: dict[str, Any] = {"prompt": "the rest", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
LONG: dict[str, Any] = {**BODY, "max_tokens": 900}
KEY = "correct-horse-battery"


@pytest.fixture(scope="module")
def llm(served_model: Path) -> LLM:
    return LLM(served_model, "none", threads=1, max_num_requests=2)


@pytest.fixture(scope="module")
def brake(llm: LLM) -> Brake:
    return Brake(llm)


@pytest.fixture(scope="module")
def small(llm: LLM, brake: Brake) -> Iterator[Served]:
    with serving(llm, max_queue=2, api_keys=(KEY, "another-key-of-someone")) as served:
        yield served


@pytest.fixture
def served(small: Served, brake: Brake) -> Iterator[Served]:
    brake.seconds, brake.error = 0.0, None
    yield small
    brake.seconds, brake.error = 0.0, None
    small.wait_until_idle()


AUTHORISED = {"headers": {"Authorization": f"Bearer {KEY}"}}


def in_background(served: Served, body: dict[str, Any], count: int) -> list[threading.Thread]:
    def ask() -> None:
        served.post("/v1/completions", body, **AUTHORISED)

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 60
    while served.service.num_open < count:
        assert time.monotonic() < end
        time.sleep(0.01)
    return threads


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", f"Basic {KEY}", f"Bearer {KEY}x", "Bearer \u00e9".encode()]
)
def test_without_a_key_nothing_is_answered(served: Served, header: str | bytes | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    for path in ("/v1/models", "/v1/config", "/metrics"):
        answer = served.get(path, headers=headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert KEY not in answer.text
    assert served.post("/v1/completions", BODY, headers=headers).status_code == 401
    assert served.get("/health").status_code == served.get("/ready").status_code == 200


def test_each_key_opens(served: Served) -> None:
    for key in (KEY, "another-key-of-someone"):
        assert served.get("/v1/models", headers={"Authorization": f"bearer {key}"}).status_code == 200
    assert KEY not in served.get("/v1/config", **AUTHORISED).text


def test_a_full_queue_answers_429(served: Served, brake: Brake) -> None:
    brake.seconds = 0.02
    threads = in_background(served, {**BODY, "max_tokens": 40}, 4)  # two run, two wait
    answer = served.post("/v1/completions", BODY, **AUTHORISED)
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"]["type"] == "rate_limit_error"
    for thread in threads:
        thread.join()
    assert served.post("/v1/completions", BODY, **AUTHORISED).status_code == 200


def test_deadlines(served: Served, brake: Brake) -> None:
    """A deadline ends a reply with what it has; who waits too long to begin gets no reply at all."""
    brake.seconds = 0.02
    threads = in_background(served, {**LONG, "deadline": 3.0}, 2)
    answer = served.post("/v1/completions", {**BODY, "max_queue_time": 0.1}, **AUTHORISED)
    assert answer.status_code == 429
    assert "max_queue_time" in answer.json()["error"]["message"]
    for thread in threads:
        thread.join()
    reply = served.post("/v1/completions", {**LONG, "deadline": 0.5}, **AUTHORISED).json()
    assert reply["choices"][0]["stop_reason"] == "deadline"
    assert reply["choices"][0]["finish_reason"] == "length"
    assert 0 < reply["usage"]["completion_tokens"] < 900


def test_a_failing_engine_ends_requests_and_not_the_server(served: Served, brake: Brake) -> None:
    brake.error = RuntimeError("secret detail")
    answer = served.post("/v1/completions", BODY, **AUTHORISED)
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "engine_error"
    assert "secret" not in answer.text
    with served.client(**AUTHORISED) as client:
        stream = client.post("/v1/completions", json={**BODY, "stream": True}).text
    assert '"code":"engine_error"' in stream
    assert stream.endswith("data: [DONE]\n\n")
    brake.error = None
    assert served.post("/v1/completions", BODY, **AUTHORISED).status_code == 200


def test_a_stuck_step_makes_the_server_unhealthy(brake: Brake, small: Served) -> None:
    service = small.service
    before = service.settings
    service.settings = replace(before, stuck_seconds=0.2)
    brake.go.clear()
    threads = in_background(small, {**BODY, "max_tokens": 1}, 1)
    try:
        end = time.monotonic() + 60
        while (answer := small.get("/health")).status_code == 200:
            assert time.monotonic() < end, "a stuck step was not noticed"
        assert answer.status_code == 503
        assert "a step has been running" in answer.json()["reason"]
        assert small.get("/ready").status_code == 503
    finally:
        brake.go.set()
        for thread in threads:
            thread.join()
        service.settings = before
    assert small.get("/health").status_code == 200


def test_a_stopping_server_ends_what_runs_and_takes_nothing_new(served_model: Path) -> None:
    llm = LLM(served_model, "none", threads=1)
    brake = Brake(llm)
    replies: list[Any] = []
    with serving(llm, drain_seconds=60) as served:
        plain = served.post("/v1/completions", {**BODY, "max_tokens": 60}).json()
        brake.seconds = 0.02
        client = served.client()
        client.get("/health")  # a connection that stays open while the server drains

        def ask() -> None:
            replies.append(served.post("/v1/completions", {**BODY, "max_tokens": 60}).json())

        thread = threading.Thread(target=ask)
        thread.start()
        while not served.service.num_open:
            time.sleep(0.01)
        served.service.draining = True
        assert client.get("/ready").status_code == 503
        answer = client.post("/v1/completions", json=BODY)
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
        client.close()
    thread.join()
    assert replies[0]["choices"] == plain["choices"]
    assert not llm.engine.has_unfinished
    assert not served.service.thread.is_alive


def test_who_is_cut_off_at_the_end_is_told(served_model: Path) -> None:
    """A whole reply that is not ready when draining is over: 503, and when to ask again."""
    llm = LLM(served_model, "none", threads=1)
    brake = Brake(llm)
    answers: list[Any] = []
    with serving(llm, drain_seconds=1) as served:
        brake.seconds = 0.02
        thread = threading.Thread(target=lambda: answers.append(served.post("/v1/completions", LONG)))
        thread.start()
        while not served.service.num_open:
            time.sleep(0.01)
    thread.join()
    assert answers[0].status_code == 503
    assert answers[0].json()["error"]["code"] == "stopping"
    assert "retry-after" in answers[0].headers
    assert not llm.engine.has_unfinished


def test_named_web_pages_may_call(served_model: Path) -> None:
    """A browser asks beforehand, without the key; other pages get no leave."""
    asks = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    llm = LLM(served_model, "none", threads=1)
    with (
        serving(llm, allow_origins=("https://app.example",), api_keys=(KEY,)) as served,
        served.client() as client,
    ):
        for origin, allowed in (("https://app.example", True), ("https://evil.example", False)):
            answer = client.options("/v1/completions", headers={"Origin": origin, **asks})
            assert (answer.headers.get("access-control-allow-origin") == origin) == allowed
        answer = client.post("/v1/completions", json=BODY, headers={"Origin": "https://app.example"})
        assert answer.status_code == 401
        assert answer.headers["access-control-allow-origin"] == "https://app.example"


def test_requests_are_logged_without_their_prompts(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="paceline.server.access"):
        headers = {**AUTHORISED["headers"], "X-Request-Id": "my-id"}
        served.post("/v1/completions", {**BODY, "prompt": "zebra stripes"}, headers=headers)
        served.wait_until_idle()
        end = time.monotonic() + 30  # the line is written once the reply has gone out
        while not caplog.records and time.monotonic() < end:
            time.sleep(0.01)
    (record,) = [record for record in caplog.records if record.name == "paceline.server.access"]
    line = logs.JsonFormatter().format(record)
    assert '"request_id": "my-id"' in line
    assert '"output_tokens": 4' in line
    assert '"finish_reasons": ["length"]' in line
    assert "zebra" not in line
    assert KEY not in line
    assert "output_tokens=4" in logs.TextFormatter().format(record)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_names": ()}, "model_names"),
        ({"api_keys": ("",)}, "API key"),
        ({"api_keys": ("a\nb",)}, "API key"),
        ({"max_queue": -1}, "max_queue"),
        ({"stuck_seconds": 0}, "stuck_seconds"),
        ({"metrics_compat": "vlm"}, "did you mean 'vllm'"),
        ({"drain": 3}, "did you mean 'drain_seconds'"),
        ({"request_timeout": float("nan")}, "request_timeout"),
    ],
    ids=str,
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ServerSettings(**{"model_names": ("tiny",), **settings})
