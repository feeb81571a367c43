"""The parent's side of a worker: start it, ask it, end it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from peering.protocol import PeerSettings, PeerUnavailableError

BENCHMARKS = Path(__file__).resolve().parent.parent


class PeerProcess:
    """One engine in a process of its own. Use as a context manager."""

    def __init__(self, name: str, python: str, settings: PeerSettings, log: IO[bytes]) -> None:
        """Start engine ``name`` under interpreter ``python``; what it prints goes to ``log``.

        Raises ``PeerUnavailableError`` when it is not installed there or cannot read the model.
        """
        self.name = name
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(BENCHMARKS), os.environ.get("PYTHONPATH")])),
            "OMP_NUM_THREADS": str(settings.threads),
            "PACELINE_THREADS": str(settings.threads),
        }
        self._process = subprocess.Popen(
            [python, "-m", "peering.worker", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            text=True,
        )
        try:
            self.description: dict[str, str] = self._ask(dataclasses.asdict(settings))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: str, **arguments: Any) -> Any:
        """Run one method of the peer and return its result."""
        return self._ask({"call": method, "arguments": arguments})

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} died (exit status {self._process.wait()})")
        reply = json.loads(line)
        if "unavailable" in reply:
            raise PeerUnavailableError(reply["unavailable"])
        if "error" in reply:
            raise RuntimeError(f"{self.name}: {reply['error']}")
        return reply["result"]

    def close(self) -> None:
        """End the worker: closing its stdin is the signal; it is killed if it does not follow."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):  # it is gone already, with a request still on its way
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
