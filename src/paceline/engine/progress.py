"""A progress bar on stderr for runs that take long enough to wonder about."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

QUIET_SECONDS = 2.0


class RunProgress:
    """Counts finished requests and tokens.

    ``wanted``: ``True`` shows the bar from the start, ``False`` never, ``None`` on a terminal once a run of
    several requests has taken two seconds.
    """

    def __init__(self, num_requests: int, wanted: bool | None) -> None:
        self._num_requests = num_requests
        self._wanted = wanted
        self._start = time.perf_counter()
        self._tokens = 0
        self._finished = 0
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._show_if_due()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, tokens: int, finished: int) -> None:
        """Count ``tokens`` more tokens and ``finished`` more requests."""
        self._tokens += tokens
        self._finished += finished
        self._show_if_due()
        if self._bar is not None and self._task is not None:
            rate = self._tokens / max(time.perf_counter() - self._start, 1e-9)
            self._bar.update(self._task, completed=self._finished, rate=f"{rate:.1f} tokens/s")

    def _show_if_due(self) -> None:
        if self._bar is not None or self._wanted is False:
            return
        is_due = (
            self._num_requests > 1
            and time.perf_counter() - self._start > QUIET_SECONDS
            and sys.stderr.isatty()
        )
        if self._wanted or is_due:
            self._show()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("generating"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("", total=self._num_requests, completed=self._finished, rate="")
        self._bar.start()
