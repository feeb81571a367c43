"""Which rows train and which judge: a function of the row's id, so that it never changes between runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from paceline.train.loops import LoopCounts, without_loops
from paceline.train.rows import Row, read_rows
from paceline.train.supervision import MIN_RESPONSE


def is_held_out(row_id: str, share: float) -> bool:
    """Return whether a row judges; true for about ``share`` of all ids."""
    digest = hashlib.sha256(b"held out\0" + row_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2.0**64


def training_rows(paths: Sequence[Path], counts: LoopCounts | None = None) -> Iterator[Row]:
    """Yield the rows that are captured: loops cut, those too short to teach anything left out."""
    rows: Iterable[Row] = (row for path in paths for row in read_rows(path))
    kept = without_loops(rows, counts if counts is not None else LoopCounts())
    return (row for row in kept if len(row.response) >= MIN_RESPONSE)
