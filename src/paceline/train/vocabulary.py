"""The draft vocabulary: the tokens the target writes most often. A head's logits cost what its size says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paceline.errors import ConfigError
from paceline.records import IntArray
from paceline.train.rows import Row
from paceline.train.storage import read_json, write_json

STEP = 16
"""The native kernel computes 16 outputs at a time, so sizes are multiples of it."""
REPORTED_SIZES = (1024, 2048, 4096, 8192, 16384)
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DraftVocabulary:
    """``draft_to_target`` int32 [Vd]: target ids, rising. ``coverage``: share of the counted response tokens
    among them. ``coverage_at``: the same for other sizes, in rising order of size."""

    draft_to_target: IntArray
    coverage: float
    coverage_at: tuple[tuple[int, float], ...]

    def write(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        values = {"coverage": self.coverage, "coverage_at": [list(pair) for pair in self.coverage_at]}
        write_json(path, {**values, "draft_to_target": self.draft_to_target.tolist()})

    @classmethod
    def read(cls, path: Path) -> DraftVocabulary:
        """Read what :meth:`write` wrote. Raises ``ConfigError``."""
        values = read_json(path)
        try:
            ids = np.asarray(values["draft_to_target"], dtype=np.int32)
            pairs = tuple((int(size), float(share)) for size, share in values["coverage_at"])
            return cls(ids, float(values["coverage"]), pairs)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{path} is damaged ({error!r}): delete it and run again") from error


def count_responses(rows: Iterable[Row], vocab_size: int) -> Counts:
    """Return how often the responses use each id, int64 [V]. Raises ``ConfigError`` for ids past V."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for row in of_target(rows, vocab_size):
        np.add.at(counts, np.asarray(row.response, dtype=np.int64), 1)
    return counts


def of_target(rows: Iterable[Row], vocab_size: int) -> Iterator[Row]:
    """Yield ``rows``. Raises ``ConfigError`` for one with a token past the target's ``vocab_size``."""
    for row in rows:
        if max(row.tokens, default=0) >= vocab_size:
            raise ConfigError(
                f"row {row.id!r} holds the token {max(row.tokens)}, but the target has {vocab_size}: "
                "the replies are another model's"
            )
        yield row


def check_size(size: int, vocab_size: int) -> None:
    """Raise ``ConfigError`` for a draft vocabulary that cannot be served."""
    if size != vocab_size and (size % STEP or not STEP <= size < vocab_size):
        raise ConfigError(
            f"draft vocabulary of {size}: give a multiple of {STEP} below the target's {vocab_size}, or "
            f"{vocab_size} for all of it"
        )


def choose_vocabulary(counts: Counts, size: int, always: Collection[int] = ()) -> DraftVocabulary:
    """Return the ``size`` most frequent ids, those of ``always`` (EOS, control tokens) that occur among them.

    ``counts`` [V]: frequency or probability mass. Equal counts: the lower id. ``size`` is a multiple of 16 or
    V itself. Raises ``ConfigError`` for another size, and when nothing was counted.
    """
    vocab_size = len(counts)
    check_size(size, vocab_size)
    total = float(counts.sum())
    if not total:
        raise ConfigError("no response token was counted: there is nothing to choose a vocabulary from")
    weights = counts.astype(np.float64)
    forced = [token for token in always if 0 <= token < vocab_size and counts[token]]
    weights[forced] += total  # above every other
    order = np.argsort(-weights, kind="stable")
    chosen = np.sort(order[:size]).astype(np.int32)
    covered = np.cumsum(counts[np.argsort(-counts, kind="stable")]) / total
    sizes = [n for n in REPORTED_SIZES if n < vocab_size]
    at = (*((n, float(covered[n - 1])) for n in sizes), (vocab_size, 1.0))
    return DraftVocabulary(chosen, float(counts[chosen].sum()) / total, at)
