"""A sign of life while costs are measured: a bar on a terminal, one line in the log elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

logger = logging.getLogger("paceline.profiling")

Progress = Callable[[float], None]

_give_way: ContextVar[Callable[[], None] | None] = ContextVar("give_way", default=None)


@contextmanager
def giving_way(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` before a bar is shown in this block: two live displays would write over each other."""
    token = _give_way.set(stop)
    try:
        yield
    finally:
        _give_way.reset(token)


@contextmanager
def measuring(what: str) -> Iterator[Progress]:
    """Show that ``what`` is measured; yields the function that takes the share done."""
    if not sys.stderr.isatty():
        # A warning, as that is what is shown where nobody has set a log up: seconds of silence puzzle people.
        logger.warning("measuring what %s costs here (once; about 10 s)", what)
        yield lambda share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    stop = _give_way.get()
    if stop is not None:
        stop()
    label = f"measuring what {what} costs here (once)"
    columns = (TextColumn(label, markup=False), BarColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda share: bar.update(task, completed=share)
