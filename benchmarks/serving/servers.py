"""Servers as child processes: started on a free port, waited for, ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

START_SECONDS = 120.0
_OURS = "from paceline.cli.main import main; main()"


@dataclass(frozen=True, slots=True)
class Machine:
    """``llama_server``: the binary, ``None`` to leave it out. ``context``: tokens of each slot."""

    model: Path
    llama_server: Path | None
    threads: int
    context: int
    log: Path

    def paceline(self, port: int, slots: int) -> list[str]:
        """Return the command of our server with its default drafter."""
        sizes = ["--threads", self.threads, "--context", self.context]
        sizes += ["--kv-cache-tokens", slots * self.context, "--max-num-requests", slots]
        command = ["serve", "--model", self.model, "--port", port, "--log-level", "error", *sizes]
        return [sys.executable, "-c", _OURS, *map(str, command)]

    def llama(self, port: int, slots: int) -> list[str]:
        """Return the command of llama-server with as many slots of the same size."""
        sizes = ["--threads", self.threads, "--threads-batch", self.threads, "--parallel", slots]
        sizes += ["--ctx-size", slots * self.context]
        return [str(self.llama_server), "--model", str(self.model), "--port", str(port), *map(str, sizes)]


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: Sequence[str], port: int, log: Path) -> Iterator[str]:
    """Run a server; yield its address once it is healthy. Raises ``SystemExit`` when it does not start."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        process = _start(command, sink)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(process, f"{address}/health", log)
            yield address
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(command: Sequence[str], sink: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=sink, stderr=sink, env=os.environ)


def _wait(process: subprocess.Popen[bytes], health: str, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with status {process.returncode}; it said why in {log}")
        try:
            with urllib.request.urlopen(health, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.05)
    raise SystemExit(f"{health} was not healthy within {START_SECONDS:.0f} s; see {log}")
