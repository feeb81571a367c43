"""Which rows train and which judge: a function of the row's id, so that it never changes between runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from paceline.errors import ConfigError
from paceline.train.loops import LoopCounts, without_loops
from paceline.train.rows import Row, read_rows
from paceline.train.supervision import MIN_RESPONSE


def is_held_out(row_id: str, share: float) -> bool:
    """Return whether a row judges; true for about ``share`` of all ids."""
    return held_out_point(row_id) < share


def held_out_point(row_id: str) -> float:
    """Return the place of a row in [0, 1)."""
    digest = hashlib.sha256(b"held out\0" + row_id.encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) * 2.0**-53


def training_rows(paths: Sequence[Path], counts: LoopCounts | None = None) -> Iterator[Row]:
    """Yield the rows that are captured: loops cut, those too short to teach anything left out."""
    rows: Iterable[Row] = (row for path in paths for row in read_rows(path))
    kept = without_loops(rows, counts if counts is not None else LoopCounts())
    return (row for row in kept if len(row.response) >= MIN_RESPONSE)


def held_out_indices(ids: Sequence[str], share: float) -> list[int]:
    """Return the places of the rows that judge, at least one of two or more.

    Raises ``ConfigError`` when only one row is there, which cannot both train and judge.
    """
    if len(ids) < 2:
        raise ConfigError(f"{len(ids)} row is too little: one at least must train and another one judge")
    held = [index for index, name in enumerate(ids) if is_held_out(name, share)]
    if len(held) == len(ids):
        held.pop()
    return held or [min(range(len(ids)), key=lambda index: held_out_point(ids[index]))]
