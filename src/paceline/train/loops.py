"""Small targets fall into loops. A loop is easy to draft and teaches nothing else, so it is cut off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from paceline.train.rows import Row

MAX_PERIOD = 96
"""Longest cycle looked for, in tokens."""
MIN_REPEATED = 24
"""Tokens a cycle must go on for behind its first round; at least two more rounds in any case."""
WINDOW = 128
MIN_DISTINCT = 0.4
"""A reply with a window of ``WINDOW`` tokens in which fewer 4-grams than this share are distinct is dropped:
it loops with variations, which no cycle shows."""
MIN_KEPT = 8
"""Replies cut to fewer tokens than this are dropped."""
_GRAM = 4


def second_cycle(tokens: Sequence[int]) -> int | None:
    """Return where the second round of the first repeated cycle starts, ``None`` without one.

    >>> second_cycle([9, 8, 7] + [1, 2, 3, 4, 5, 6, 7, 8] * 5)
    11
    """
    # A run of so many repeated tokens repeats nearly as many 4-grams: most texts are done with here.
    if _num_repeated(tokens) < MIN_REPEATED - _GRAM + 1:
        return None
    ids = np.asarray(tokens)
    first: int | None = None
    for period in range(1, min(MAX_PERIOD, len(ids) // 3) + 1):
        same = ids[period:] == ids[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
        starts, ends = edges[::2], edges[1::2]
        long = starts[ends - starts >= max(2 * period, MIN_REPEATED)]
        if len(long) and (first is None or int(long[0]) + period < first):
            first = int(long[0]) + period
    return first


def _num_repeated(tokens: Sequence[int]) -> int:
    """Return how many 4-grams have stood before."""
    grams = [tuple(tokens[i : i + _GRAM]) for i in range(len(tokens) - _GRAM + 1)]
    return len(grams) - len(set(grams))


def least_distinct_share(tokens: Sequence[int]) -> float:
    """Return the lowest share of distinct 4-grams in any window of ``WINDOW`` tokens (half overlapping)."""
    grams = [tuple(tokens[i : i + _GRAM]) for i in range(len(tokens) - _GRAM + 1)]
    size = WINDOW - _GRAM + 1
    starts = range(0, max(1, len(grams) - size + 1), WINDOW // 2)
    shares = (
        len(set(part)) / len(part) for part in (grams[s : s + size] for s in starts) if len(part) == size
    )
    return min(shares, default=1.0)


@dataclass
class LoopCounts:
    """What :func:`without_loops` did. Tokens are response tokens."""

    num_rows: int = 0
    num_cut: int = 0
    num_dropped: int = 0
    num_tokens: int = 0
    num_tokens_left_out: int = field(default=0)


def without_loops(rows: Iterable[Row], counts: LoopCounts) -> Iterator[Row]:
    """Yield rows with the response cut at the second round of a cycle; leave other loops out."""
    for row in rows:
        end = second_cycle(row.response)
        kept = row if end is None else replace(row, response=row.response[:end])
        is_dropped = (end is not None and end < MIN_KEPT) or least_distinct_share(
            kept.response
        ) < MIN_DISTINCT
        counts.num_rows += 1
        counts.num_cut += end is not None and not is_dropped
        counts.num_dropped += is_dropped
        tokens = 0 if is_dropped else len(kept.response)
        counts.num_tokens += tokens
        counts.num_tokens_left_out += len(row.response) - tokens
        if not is_dropped:
            yield kept


def distinct_share(tokens: Sequence[int]) -> float:
    """Return the number of different 4-grams ÷ the number of 4-grams; 1.0 for shorter texts."""
    grams = [tuple(tokens[i : i + _GRAM]) for i in range(len(tokens) - _GRAM + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0
