"""How a check tells how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called after each piece of work of a part."""

    def __call__(self, part: str, total: int, advance: int = 1) -> None:
        """``part``: what is being checked; ``total``: pieces it has; ``advance``: how many are done now."""
        ...


def silent(part: str, total: int, advance: int = 1) -> None:
    """Tell nobody."""
