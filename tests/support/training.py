"""What tests of training runs share: prompts, and a reporter that keeps what it is told and can interrupt."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path

WORDS = "the and in he re on er at en or es is an it ou nd to of you".split()  # noqa: SIM905


def write_prompts(path: Path, count: int, seed: int = 0) -> Path:
    """Write ``count`` different prompts of two sources."""
    rng = random.Random(seed)
    rows = [{"prompt": " ".join(rng.choices(WORDS, k=6)), "source": "ab"[i % 2]} for i in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@dataclass
class Lines:
    """A reporter. ``stop_at``: (stage, units) at which to raise ``KeyboardInterrupt``, as Ctrl-C does."""

    stop_at: tuple[str, float] | None = None
    lines: list[str] = field(default_factory=list)
    bars: list[tuple[str, float, float]] = field(default_factory=list)
    _stage: str = ""
    _done: float = 0.0
    _total: float = 0.0

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def start(self, stage: str, total: float, unit: str) -> None:
        self._stage, self._done, self._total = stage, 0.0, total

    def advance(self, done: float, note: str = "") -> None:
        self._done += done
        if self.stop_at is not None and self._stage == self.stop_at[0] and self._done >= self.stop_at[1]:
            raise KeyboardInterrupt

    def say(self, text: str) -> None:
        self.lines.append(text)

    def stop(self) -> None:
        if self._stage:
            self.bars.append((self._stage, self._done, self._total))
        self._stage = ""
