"""``paceline serve`` as a program: its options, its end by signals, and its start after being killed."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.program import RUN, Program
from support.served import unread

Start = Callable[..., Program]
COMPLETIONS = "/v1/completions"
LAST_SECONDS = 20.0
"""Behind ``--drain-seconds``: 10 for a step to end, and what a loaded machine needs to end a process."""
ENDED = 'request_success_total{engine="0",finished_reason="length",model_name="tiny"} 4.0'
HANG = """
import time
from paceline.executors.cpu import CpuExecutor
CpuExecutor.forward = lambda *_: time.sleep(3600)
"""
BODY: dict[str, Any] = {"prompt": "the rest", "max_tokens": 200, "temperature": 0, "ignore_eos": True}


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = httpx2.post(url + COMPLETIONS, json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    reply: dict[str, Any] = answer.json()
    return reply


def test_sigterm_lets_a_stream_end_and_leaves_with_0(start: Start) -> None:
    program = start("--drain-seconds", "60")
    client = httpx2.Client(trust_env=False, timeout=120)
    body = {**BODY, "stream": True}
    with client, client.stream("POST", program.url + COMPLETIONS, json=body) as response:
        pieces = response.iter_text()
        text = next(pieces)
        program.process.send_signal(signal.SIGTERM)
        text += "".join(pieces)
    assert text.endswith("data: [DONE]\n\n")
    frames = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert frames[-1]["choices"][0]["finish_reason"] == "length"
    assert program.process.wait(60) == 0


def test_draining_ends_in_time(start: Start) -> None:
    """A client that never stops asking is cut off when the time is over."""
    program = start("--drain-seconds", "1", "--drafter", "none")
    with httpx2.Client(trust_env=False, timeout=120) as client:
        body = {"prompt": ["a"] * 32, "max_tokens": 900, "ignore_eos": True, "n": 4, "stream": True}
        with client.stream("POST", program.url + COMPLETIONS, json=body) as response:
            next(response.iter_bytes())
            program.process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            assert program.process.wait(60) == 0
            assert time.monotonic() - began < 1 + LAST_SECONDS


def test_who_does_not_read_does_not_keep_the_program(start: Start) -> None:
    """The reply is complete and megabytes of it wait for their reader when the signal comes."""
    program = start("--drain-seconds", "1", "--drafter", "none")
    wide = {"n": 4, "logprobs": 20, "max_tokens": 700, "temperature": 1.0, "stream": True}
    with unread(program.url, COMPLETIONS, {**BODY, **wide}):
        while ENDED not in metrics(program.url):
            time.sleep(0.05)
        program.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert program.process.wait(60) == 0
        assert time.monotonic() - began < 1 + LAST_SECONDS
    assert "Traceback" not in "".join(program.lines)


def test_a_step_that_hangs_is_reported_and_does_not_keep_the_program(start: Start) -> None:
    """The watchdog's limit is half a second here; SIGTERM waits for nobody longer than it says."""
    program = start("--drain-seconds", "1", "--stuck-seconds", "0.5", before=HANG)
    with httpx2.Client(trust_env=False, timeout=60) as client:
        assert client.get(program.url + "/health").status_code == 200
        asking = threading.Thread(target=broken_off, args=(program.url, BODY))
        asking.start()
        began = time.monotonic()
        while (answer := client.get(program.url + "/health")).status_code == 200:
            assert time.monotonic() - began < 30, "a step that hangs went unnoticed"
            time.sleep(0.05)
        assert answer.status_code == 503
        assert "a step has been running" in answer.json()["reason"]
        assert client.get(program.url + "/metrics").status_code == 200, "the rest of the server answers"
    program.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert program.process.wait(60) == 0
    assert time.monotonic() - began < 1 + LAST_SECONDS
    asking.join()


def broken_off(url: str, body: dict[str, Any]) -> None:
    """Read a stream whose server goes away."""
    with contextlib.suppress(httpx2.HTTPError):
        httpx2.post(url + COMPLETIONS, json={**body, "stream": True}, timeout=60)


def test_killed_at_work_and_started_again(start: Start) -> None:
    """``kill -9`` in the middle of eight streams: the next one has the same port and the same answers."""
    program = start()
    expected = post(program.url, {**BODY, "seed": 3})["choices"][0]["text"]
    body = {**BODY, "max_tokens": 900, "n": 4}
    clients = [threading.Thread(target=broken_off, args=(program.url, body)) for _ in range(2)]
    for client in clients:
        client.start()
    while 'num_requests_running{engine="0",model_name="tiny"} 8.0' not in metrics(program.url):
        assert program.process.poll() is None
        time.sleep(0.01)
    program.end()
    for client in clients:
        client.join()
    port = program.url.rpartition(":")[2]
    program = start("--port", port, "--log-format", "text")
    assert program.url.endswith(port)
    assert httpx2.get(program.url + "/ready", timeout=60).status_code == 200
    assert post(program.url, {**BODY, "seed": 3})["choices"][0]["text"] == expected


def metrics(url: str) -> str:
    return httpx2.get(url + "/metrics", timeout=60).text


def test_a_drift_raises_one_alarm_line_and_the_metric(start: Start, tmp_path: Path) -> None:
    """The table [drift] of ``--config``: acceptance was 95 % once, and this noise lets nobody predict it.

    The baseline is too good to be true for text drawn at temperature 2, so the fall is there from the first
    request on; it is told once, and /v1/config repeats it.
    """
    path = tmp_path / "settings.toml"
    path.write_text(
        'drafter = "recycle"\n[serve]\nmax-queue = 7\n[drift]\nmin_ratio = 0.6\n'
        "[drift.baseline.recycle]\naccepted = [950, 900]\ntried = [1000, 950]\n",
        encoding="utf-8",
    )
    program = start("--config", str(path))
    assert "paceline:drift_alarms_total{" in metrics(program.url)
    assert program_alarms(program.url) == (0.0, [])
    for seed in range(4):
        post(program.url, {**BODY, "temperature": 2.0, "seed": seed})
    count, told = program_alarms(program.url)
    assert count == len(told) == 1
    assert "acceptance of drafter 'recycle' fell from 95%" in told[0]
    line = json.loads(program.wait_for(r"(?m)^(.*paceline[.]drift.*)$"))
    assert line["level"] == "warning"
    assert line["message"] == told[0]
    assert sum("paceline.drift" in line for line in program.lines) == 1


def program_alarms(url: str) -> tuple[float, list[str]]:
    """Return the metric, and what /v1/config says."""
    found = re.search(r"^paceline:drift_alarms_total{[^}]*} (.*)$", metrics(url), re.MULTILINE)
    assert found is not None
    config = httpx2.get(url + "/v1/config", timeout=60).json()
    assert config["server"]["max_queue"] == 7
    return float(found[1]), config["speculation"]["alarms"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--host", "0.0.0.0"), "lets other machines in"),
        (("--no-key", "--api-key", "a-key-of-sixteen-letters"), "contradicts"),
        (("--api-key", "s3cret"), "--api-key: a key has fewer than 16 characters"),
        (("--port", "70000"), "--port 70000"),
        (("--metrics-compat", "vlm"), "did you mean 'vllm'"),
        (("--log-level", "inf"), "did you mean 'info'"),
        (("--max-num-requests", "0"), "--max-num-requests 0"),
        (("--api-key-file", "/nowhere"), "cannot be read"),
    ],
    ids=str,
)
def test_bad_options(served_model: Path, options: tuple[str, ...], message: str) -> None:
    command = [*RUN, "--model", str(served_model), "--port", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--port", "{taken}"), "--port {taken}: Address already in use; stop the program that does"),
        (("--host", "192.0.2.1", "--no-key"), "--host 192.0.2.1: Cannot assign requested address"),
        (("--host", "no.host.invalid", "--no-key"), "--host 'no.host.invalid' is no address"),
    ],
    ids=str,
)
def test_an_address_that_cannot_be_had(served_model: Path, options: tuple[str, ...], message: str) -> None:
    """The program once said that it served at a port that another one held; only the log knew better."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        given = [option.format(taken=taken) for option in options]
        done = subprocess.run([*RUN, "--model", str(served_model), *given], capture_output=True, text=True)
    assert done.returncode == 2
    assert message.format(taken=taken) in done.stderr
    assert "serving" not in done.stderr
