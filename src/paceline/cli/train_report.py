"""What a training run shows: a bar per stage with throughput and remaining time, and lines worth keeping."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.train.pipeline import Pipeline

QUIET_SECONDS = 60.0
"""Between lines about progress where no bar can be shown."""

ON_DISK_SECONDS = 0.5
"""Work reported sooner than this was done by an earlier run: it says nothing about the speed of this one."""


class BarReporter:
    """Bars on a terminal; elsewhere a line a minute. See :class:`paceline.train.progress.Reporter`."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._stage, self._unit = "", ""
        self._total = self._done = self._first = 0.0
        self._started = self._told = 0.0
        self._note = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, stage: str, total: float, unit: str) -> None:
        """See :class:`~paceline.train.progress.Reporter`."""
        self.stop()
        self._stage, self._total, self._unit = stage, total, unit
        self._done, self._first, self._note = 0.0, -1.0, ""
        self._started = self._told = time.monotonic()
        if self.console.is_terminal:
            columns = (
                TextColumn(f"{stage:<10}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(f"{unit} · " + "{task.fields[rate]} · {task.fields[note]}"),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=self.console, transient=True)
            self._bar.add_task("", total=total, rate="", note="")
            self._bar.start()

    def advance(self, done: float, note: str = "") -> None:
        """See :class:`~paceline.train.progress.Reporter`. What is done at once at the start was on disk."""
        now = time.monotonic()
        self._done += done
        self._note = note or self._note
        if self._first < 0:
            self._first, self._started = (
                (self._done, now) if now - self._started < 0.5 else (0.0, self._started)
            )
        rate = self._rate(now)
        if self._bar is not None:
            text = f"{rate:.4g}/s"
            self._bar.update(self._bar.task_ids[0], completed=self._done, rate=text, note=self._note)
        elif now - self._told >= QUIET_SECONDS:
            self._told = now
            left = (self._total - self._done) / rate if rate else 0.0
            self.say(
                f"{self._stage}: {self._done:g} of {self._total:g} {self._unit}, {rate:.4g}/s, "
                f"{left / 60:.0f} min left · {self._note}"
            )

    def _rate(self, now: float) -> float:
        seconds = now - self._started
        return (self._done - self._first) / seconds if seconds > 0 else 0.0

    def say(self, text: str) -> None:
        """See :class:`~paceline.train.progress.Reporter`."""
        self.console.print(text, markup=False, soft_wrap=True)

    def stop(self) -> None:
        """See :class:`~paceline.train.progress.Reporter`."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def show_rows(run: Pipeline, count: int) -> None:
    """Print ``count`` rows with each token in the colour of its part in training.

    Raises ``ConfigError`` when there are no replies yet, or no token is supervised.
    """
    from paceline.train.loops import second_cycle
    from paceline.train.rows import read_rows
    from paceline.train.split import training_rows
    from paceline.train.stage import is_done
    from paceline.train.supervision import LEGEND, count_supervised, render_row

    if not run.options.replies and not run.reply_files[0].is_file():
        raise ConfigError("there are no replies to inspect yet: run with --until regenerate first")
    total = count_supervised(training_rows(run.reply_files))
    vocabulary = run.draft_vocabulary().draft_to_target if is_done(run.options.out, "vocabulary") else None
    console = Console(highlight=False)
    rows = (row for path in run.reply_files for row in read_rows(path))
    for _, row in zip(range(count), rows, strict=False):
        console.rule(f"{row.id} · {row.source} · temperature {row.temperature:g}", style="dim")
        kept = second_cycle(row.response)
        ids = None if vocabulary is None else vocabulary.tolist()
        console.print(render_row(row, run.place.tokenizer, kept=kept, vocabulary=ids))
    console.print(LEGEND)
    console.print(f"{total} supervised tokens in all rows")
