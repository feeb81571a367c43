"""How a training run tells what it is doing. The command line shows bars; the library is silent."""

from __future__ import annotations

from typing import Protocol


class Reporter(Protocol):
    """Told by the pipeline; ``unit`` names what is counted, e.g. ``tokens``."""

    def start(self, stage: str, total: float, unit: str) -> None:
        """A stage begins, with ``total`` units of work."""
        ...

    def advance(self, done: float, note: str = "") -> None:
        """``done`` more units are finished."""
        ...

    def say(self, text: str) -> None:
        """A line worth keeping: what a stage found, what it will need."""
        ...

    def stop(self) -> None:
        """The stage has ended."""
        ...


class Silent:
    """Says nothing."""

    def start(self, stage: str, total: float, unit: str) -> None:
        """See :class:`Reporter`."""

    def advance(self, done: float, note: str = "") -> None:
        """See :class:`Reporter`."""

    def say(self, text: str) -> None:
        """See :class:`Reporter`."""

    def stop(self) -> None:
        """See :class:`Reporter`."""
