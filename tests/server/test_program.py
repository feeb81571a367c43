"""``paceline serve`` as a program: its options, its end by signals, and its start after being killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

RUN = (sys.executable, "-c", "from paceline.cli.main import main; main()", "serve")
BODY: dict[str, Any] = {"prompt": "the rest", "max_tokens": 200, "temperature": 0, "ignore_eos": True}


class Program:
    """A running ``paceline serve``, and what it has written."""

    def __init__(self, model: Path, *options: str) -> None:
        command = [*RUN, "--model", str(model), "--threads", "1", "--port", "0", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        self.url = self._wait_for(r"running on (http://[0-9.:]+)")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def _wait_for(self, pattern: str) -> str:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            found = re.search(pattern, "".join(self.lines))
            if found:
                return found[1]
            assert self.process.poll() is None, "".join(self.lines)
            time.sleep(0.05)
        raise AssertionError("".join(self.lines))


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        program.process.kill()
        program.process.wait()
        assert program.process.stderr is not None
        program.process.stderr.close()


def start(programs: list[Program], model: Path, *options: str) -> Program:
    programs.append(Program(model, *options))
    return programs[-1]


def test_sigterm_lets_a_stream_end_and_leaves_with_0(served_model: Path, programs: list[Program]) -> None:
    program = start(programs, served_model, "--drain-seconds", "60")
    with httpx2.Client(trust_env=False, timeout=120) as client:
        url = program.url + "/v1/completions"
        with client.stream("POST", url, json={**BODY, "stream": True}) as response:
            pieces = response.iter_text()
            text = next(pieces)
            program.process.send_signal(signal.SIGTERM)
            text += "".join(pieces)
    assert text.endswith("data: [DONE]\n\n")
    frames = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert frames[-1]["choices"][0]["finish_reason"] == "length"
    assert program.process.wait(60) == 0


def test_draining_ends_in_time(served_model: Path, programs: list[Program]) -> None:
    """A client that never stops asking is cut off when the time is over."""
    program = start(programs, served_model, "--drain-seconds", "1", "--drafter", "none")
    with httpx2.Client(trust_env=False, timeout=120) as client:
        body = {"prompt": ["a"] * 32, "max_tokens": 900, "ignore_eos": True, "n": 4, "stream": True}
        with client.stream("POST", program.url + "/v1/completions", json=body) as response:
            next(response.iter_bytes())
            program.process.send_signal(signal.SIGTERM)
            assert program.process.wait(60) == 0


def test_killed_and_started_again(served_model: Path, programs: list[Program]) -> None:
    texts = []
    for _ in range(2):
        program = start(programs, served_model, "--log-format", "text")
        answer = httpx2.post(program.url + "/v1/completions", json={**BODY, "seed": 3}, timeout=120)
        texts.append(answer.json()["choices"][0]["text"])
        program.process.kill()
        program.process.wait()
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--host", "0.0.0.0"), "lets other machines in"),
        (("--no-key", "--api-key", "abc"), "contradicts"),
        (("--port", "70000"), "--port 70000"),
        (("--metrics-compat", "vlm"), "did you mean 'vllm'"),
        (("--log-level", "inf"), "did you mean 'info'"),
        (("--max-num-requests", "0"), "max_num_requests=0"),
        (("--api-key-file", "/nowhere"), "cannot be read"),
    ],
    ids=str,
)
def test_bad_options(served_model: Path, options: tuple[str, ...], message: str) -> None:
    done = subprocess.run([*RUN, "--model", str(served_model), *options], capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
