"""A running ``paceline serve``: what it has written, where it listens, and its end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

MAIN = "from paceline.cli.main import main; main()"
RUN = (sys.executable, "-c", MAIN, "serve")


class Program:
    """A running ``paceline serve``, and what it has written. ``before``: Python that runs in it first."""

    def __init__(self, model: Path, *options: str, before: str = "") -> None:
        command = [sys.executable, "-c", f"{before}\n{MAIN}", "serve", "--model", str(model)]
        command += ["--threads", "1", "--port", "0", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = self.wait_for(r"running on (http://[0-9.:]+)")

    def end(self) -> None:
        """Kill it, as nothing can refuse."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def wait_for(self, pattern: str) -> str:
        """Wait for a line on standard error; return the pattern's first group."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            found = re.search(pattern, "".join(self.lines))
            if found:
                return found[1]
            assert self.process.poll() is None, "".join(self.lines)
            time.sleep(0.05)
        raise AssertionError("".join(self.lines))
