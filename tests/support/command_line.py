"""The command line, run in the test's own process."""

from __future__ import annotations

import io
import sys

import pytest

from paceline.cli import main as program


class Program:
    """Runs ``paceline`` with ``before`` and the given arguments, and keeps what it printed."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *before: str
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self._before = before

    def __call__(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        """Return status, standard output and standard error."""
        self._monkeypatch.setattr(sys, "argv", ["paceline", *self._before, *arguments])
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        status = 0
        try:
            program.main()
        except SystemExit as end:
            status = int(end.code or 0)
        captured = self._capsys.readouterr()
        return status, captured.out, captured.err
