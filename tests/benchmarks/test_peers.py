"""The comparison with other engines, run with stand-ins: none of the engines has to be installed."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from peering import measure, tables, worker
from peering.measure import Plan, Results
from peering.process import PeerProcess
from peering.protocol import Generation, PeerSettings, PeerUnavailableError, spread_tokens

PLAN = Plan(("forward",), rows=(1, 4), depth=8, forwards=3, prompt_tokens=100, max_tokens=4, repeats=2)
ONCE_BROKEN = "no such entry point"


@dataclass
class StandIn:
    """A peer of a known speed: a forward takes ``base`` + rows milliseconds; calls are noted in ``log``."""

    name: str
    base: float
    log: list[str]
    rows_work: bool = True
    speculation_differs: bool = False
    description: dict[str, str] = field(default_factory=lambda: {"version": "1", "system": "none"})

    def call(self, method: str, **arguments: Any) -> Any:
        self.log.append(f"{self.name} {method}")
        if method == "forward":
            if not self.rows_work:
                raise PeerUnavailableError(ONCE_BROKEN)
            return [(self.base + arguments["num_rows"]) / 1e3] * arguments["repeats"]
        if method == "prompt":
            return [self.base] * arguments["repeats"]
        ids = list(arguments["prompt"])[: arguments["max_tokens"]]
        if arguments["speculate"] and self.speculation_differs:
            ids[-1] += 1
        return {"token_ids": ids, "seconds": self.base / (2 if arguments["speculate"] else 1)}


def two_peers(**options: Any) -> tuple[dict[str, Any], list[str]]:
    log: list[str] = []
    return {"paceline": StandIn("paceline", 1, log), "other": StandIn("other", 3, log, **options)}, log


def test_each_repeat_visits_every_engine_once() -> None:
    peers, log = two_peers()
    results = Results()
    measure.measure_prompts(peers, PLAN, results)
    assert log == ["paceline prompt", "other prompt"] * 3, "one round of warm-up and two repeats"
    assert results.prompt_tokens_per_s == {"paceline": 100.0, "other": pytest.approx(100 / 3)}


def test_forwards_are_medians_in_milliseconds() -> None:
    peers, _ = two_peers()
    results = Results()
    measure.measure_forwards(peers, PLAN, results)
    assert results.forward_ms["paceline"] == pytest.approx({1: 2.0, 4: 5.0})
    text = tables.forward_table(PLAN, results)
    assert "2.00 (1.00)" in text and "5.00 (2.50)" in text


def test_what_an_engine_cannot_do_is_noted_once_and_nowhere_else() -> None:
    peers, log = two_peers(rows_work=False)
    results = Results()
    measure.measure_forwards(peers, PLAN, results)
    assert results.notes == [f"other: {ONCE_BROKEN}"]
    assert log.count("other forward") == 1
    assert list(results.forward_ms) == ["paceline"]


def test_replies_and_whether_speculation_changed_them() -> None:
    peers, _ = two_peers(speculation_differs=True)
    results = Results()
    measure.measure_replies(peers, PLAN, [[5, 6, 7, 8, 9], [1, 2]], [0], results)
    assert results.replies["paceline"].num_tokens == [6, 6]
    assert results.replies["paceline"].tokens_per_s() == 3.0
    assert results.replies["paceline (speculative)"].tokens_per_s() == 6.0
    assert tables.same_as_plain(results, "paceline (speculative)") == "2 of 2"
    assert tables.same_as_plain(results, "other (speculative)") == "0 of 2"
    assert tables.same_as_plain(results, "other") == "–"
    facts = {
        "model": "m.gguf",
        "cpu": "a cpu",
        "threads": 2,
        "peers": {"other": {"version": "1", "system": "x"}},
    }
    text = tables.markdown(PLAN, results, facts)
    line = next(line for line in text.splitlines() if line.startswith("| other  "))
    assert [cell.strip() for cell in line.split("|")[1:-1]] == [
        "other",
        "6",
        "1.0",
        "1.0 … 1.0",
        "3.00",
        "6.00",
        "–",
    ]
    data = json.loads(json.dumps(tables.as_json(PLAN, results, facts)))
    assert data["replies"]["other"]["tokens_per_s"] == 1.0
    assert data["model"] == "m.gguf"


class Echo:
    """A peer for the worker: prints like a real engine does, and fails when asked to."""

    def __init__(self, settings: PeerSettings) -> None:
        if settings.model == "unreadable":
            raise PeerUnavailableError("cannot read unreadable")

    def describe(self) -> dict[str, str]:
        return {"version": "0", "system": "echo"}

    def prompt(self, num_tokens: int, repeats: int) -> list[float]:
        if num_tokens == 0:
            raise ValueError("nothing to do")
        return [1.0] * repeats

    def generate(
        self, prompt: Sequence[int], max_tokens: int, eos: Sequence[int], speculate: bool = False
    ) -> Generation:
        return Generation(tuple(prompt), 0.5)


def converse(monkeypatch: pytest.MonkeyPatch, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    monkeypatch.setattr(worker, "open_peer", lambda _name, settings: Echo(settings))
    answers = io.StringIO()
    worker.serve("echo", io.StringIO("".join(json.dumps(r) + "\n" for r in requests)), answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_a_worker_answers_line_by_line_and_survives_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    generate = {"prompt": [1, 2], "max_tokens": 3, "eos": []}
    assert converse(
        monkeypatch,
        {"model": "m", "threads": 2, "context": 64},
        {"call": "prompt", "arguments": {"num_tokens": 0, "repeats": 1}},
        {"call": "prompt", "arguments": {"num_tokens": 9, "repeats": 2}},
        {"call": "generate", "arguments": generate},
    ) == [
        {"result": {"version": "0", "system": "echo"}},
        {"error": "ValueError: nothing to do"},
        {"result": [1.0, 1.0]},
        {"result": {"token_ids": [1, 2], "seconds": 0.5}},
    ]
    assert converse(monkeypatch, {"model": "unreadable"}) == [{"unavailable": "cannot read unreadable"}]


def test_an_engine_that_is_not_installed_is_said_to_be_so(tmp_path: Path) -> None:
    """A real worker process, under an interpreter without site packages."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    with (
        (tmp_path / "log").open("wb") as log,
        pytest.raises(PeerUnavailableError, match="llama-cpp-python is not"),
    ):
        PeerProcess("llama.cpp", str(python), PeerSettings("m.gguf"), log)


def test_a_worker_that_dies_is_an_error_not_a_hang(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    python.chmod(0o755)
    with (tmp_path / "log").open("wb") as log, pytest.raises(RuntimeError, match=r"died \(exit status 3\)"):
        PeerProcess("llama.cpp", str(python), PeerSettings("m.gguf"), log)


def test_spread_tokens_stay_in_the_vocabulary() -> None:
    for vocab_size in (2, 300, 49152, 262144):
        tokens = spread_tokens(600, vocab_size)
        assert min(tokens) >= 0
        assert max(tokens) < vocab_size
    assert len(set(spread_tokens(600, 49152))) == 600
