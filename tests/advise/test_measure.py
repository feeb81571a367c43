"""The time measuring takes, and what the measured drafters may know of each other's replies: nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from paceline.advise import measure as measuring
from paceline.advise.measure import LEAST_TURNS, Entrant, MeasureSettings, Runs, Turn, measure
from paceline.control.acceptance_log import Tally
from paceline.llm import LLM
from support.tiny_models import write_tiny_gguf

PROMPTS = [[5, 9, 13, 21], [8, 30, 4, 17]]


def accepted(entrants: list[Entrant], folder: Path) -> int:
    """Return how many drafted tokens the last of ``entrants`` got accepted over the turns that must run."""
    llm = LLM(write_tiny_gguf(folder / "tiny.gguf", "llama", "q8_0", seed=3), "none", threads=1)
    settings = MeasureSettings(seconds=1e-3, max_tokens=24)
    runs: list[Runs] = measure(llm, entrants, PROMPTS, settings)
    return sum(runs[-1].total.accepted_at)


def test_a_draft_length_learns_nothing_from_another(tmp_path: Path) -> None:
    """``suffix`` with three tokens answered each prompt right behind ``suffix``, whose memory it shares, and
    drafted the very reply it was about to give: ``advise`` recommended it as 2.2 times as fast as plain
    decoding on SmolLM2, where it is 1.3.
    """
    short = Entrant("suffix", 3)
    assert accepted([Entrant("suffix"), short], tmp_path) <= accepted([short], tmp_path)


class Stage:
    """A model whose replies take a second each on a clock of its own, and whose forgetting takes five."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.asked: list[str] = []
        self.engine = SimpleNamespace(drafter=lambda name: SimpleNamespace(name=name))
        monkeypatch.setattr(measuring, "_reply", self.reply)

    def start_afresh(self) -> None:
        self.now += 5.0

    def reply(self, _llm: object, entrant: Entrant, *_: object) -> Turn:
        self.now += 1.0
        self.asked.append(str(entrant))
        return Turn(len(self.asked), 1.0, 10, 10, 0, 0, Tally())


def test_measuring_keeps_to_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty seconds; loading, warming up and forgetting do not count, and a late entrant gets its share."""
    stage = Stage(monkeypatch)
    late = Entrant("suffix", 3)
    entrants = [Entrant("ngram"), Entrant("suffix")]
    runs = measure(
        stage,  # type: ignore[arg-type]
        entrants,
        PROMPTS,
        MeasureSettings(seconds=30.0),
        extra=lambda _runs: [late],
        clock=lambda: stage.now,
    )
    replies = [len(run.turns) for run in runs]
    assert 30 <= sum(replies) < 30 + len(runs)
    assert runs[-1].entrant == late
    assert replies[-1] >= 3, "from half-time on"
    assert stage.now > 60, "replies, and forgetting whenever the prompts begin anew"


def test_some_turns_are_run_whatever_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    settings = MeasureSettings(seconds=0.5)
    runs = measure(stage, [Entrant("ngram")], PROMPTS, settings, clock=lambda: stage.now)  # type: ignore[arg-type]
    assert [len(run.turns) for run in runs] == [LEAST_TURNS] * 2
