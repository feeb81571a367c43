"""How much of what is drafted is accepted: by drafter, workload label, position and window.

A *position* is one drafted level that the target judged: the draft offered something there and it was
accepted, or everything it offered was refused. Levels behind a refused one were not judged and count for
nothing, and neither does a level that the accepted branch of a tree does not have. So ``accepted_at[i] ÷
tried_at[i]`` is the conditional acceptance of the glossary, for chains and trees alike.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.tree import ROOT, TokenTree

MAX_DEPTH = 16
"""Deeper positions are counted with the last one: few drafts reach them, and a series must stay small."""
MAX_SERIES = 256
"""Labels come from callers of a server: behind this many, new ones share one series."""
OTHER = "(other)"
NUM_WINDOWS = 8


@dataclass(frozen=True, slots=True)
class Judged:
    """What one verified draft showed: ``accepted`` levels, then possibly one that was ``refused``."""

    accepted: int
    refused: bool

    @property
    def num_positions(self) -> int:
        return self.accepted + self.refused


def judge(tree: TokenTree, path: Sequence[int], num_committed: int) -> Judged:
    """Return what the target said of a draft. ``path``: accepted nodes; ``num_committed``: tokens kept.

    A stop rule that fired inside the path leaves the rest of it unjudged, as the reply ends there.
    """
    if num_committed <= len(path):
        return Judged(num_committed, False)
    last = path[-1] if path else ROOT
    return Judged(len(path), last in tree.parents)


@dataclass(slots=True)
class Tally:
    """Counts of one series or window. ``tried_at[i]``: judged positions at depth i + 1."""

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_tokens: int = 0
    accepted_at: list[int] = field(default_factory=list)
    tried_at: list[int] = field(default_factory=list)

    @property
    def num_positions(self) -> int:
        return sum(self.tried_at)

    @property
    def num_accepted(self) -> int:
        return sum(self.accepted_at)

    @property
    def rate(self) -> float:
        """Accepted ÷ judged positions; 0 without any."""
        tried = self.num_positions
        return self.num_accepted / tried if tried else 0.0

    @property
    def conditional_acceptance_at(self) -> tuple[float, ...]:
        """Entry i: share of judged positions at depth i + 1 that was accepted."""
        return tuple(a / t if t else 0.0 for a, t in zip(self.accepted_at, self.tried_at, strict=True))

    def add(self, judged: Judged, num_draft_tokens: int = 0, num_tokens: int = 0) -> None:
        """Count one verified draft; ``num_tokens``: output tokens of its step."""
        self.num_drafts += 1
        self.num_draft_tokens += num_draft_tokens
        self.num_tokens += num_tokens
        accepted_at, tried_at = self.accepted_at, self.tried_at
        for level in range(judged.num_positions):
            depth = min(level, MAX_DEPTH - 1)
            if depth == len(tried_at):
                tried_at.append(0)
                accepted_at.append(0)
            tried_at[depth] += 1
            if level < judged.accepted:
                accepted_at[depth] += 1


@dataclass(slots=True)
class Window:
    """A stretch of output tokens. ``began``, ``ended``: ``time.time()`` of its first and last draft."""

    began: float
    ended: float
    tally: Tally = field(default_factory=Tally)


class Series:
    """One drafter on one workload: totals since the start, and the last windows of ``window_tokens`` each."""

    __slots__ = ("_window_tokens", "drafter", "total", "windows", "workload")

    def __init__(self, drafter: str, workload: str | None, window_tokens: int) -> None:
        self.drafter = drafter
        self.workload = workload
        self.total = Tally()
        self.windows: deque[Window] = deque(maxlen=NUM_WINDOWS)
        self._window_tokens = window_tokens

    def add(self, judged: Judged, num_draft_tokens: int, num_tokens: int) -> None:
        """Count one verified draft in the total and in the window."""
        now = time.time()
        if not self.windows or self.windows[-1].tally.num_tokens >= self._window_tokens:
            self.windows.append(Window(now, now))
        window = self.windows[-1]
        window.ended = now
        window.tally.add(judged, num_draft_tokens, num_tokens)
        self.total.add(judged, num_draft_tokens, num_tokens)


class AcceptanceLog:
    """All series. Of steps in which nothing was drafted it is told nothing."""

    def __init__(self, window_tokens: int) -> None:
        self._window_tokens = window_tokens
        self._series: dict[tuple[str, str | None], Series] = {}

    def of(self, drafter: str, workload: str | None) -> Series:
        """Return the series of a drafter on a workload (``None``: unlabelled requests)."""
        key = (drafter, workload)
        if key not in self._series and len(self._series) >= MAX_SERIES:
            key = (drafter, OTHER)
        if key not in self._series:
            self._series[key] = Series(key[0], key[1], self._window_tokens)
        return self._series[key]

    def series(self) -> tuple[Series, ...]:
        """Return every series, oldest first."""
        return tuple(self._series.values())
