"""What the measured drafters may know of each other's replies: nothing."""

from __future__ import annotations

from pathlib import Path

from paceline.advise.measure import Entrant, MeasureSettings, Runs, measure
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
