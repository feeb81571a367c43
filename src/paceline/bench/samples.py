"""What was measured, one entry for each unit and repeat: what confidence intervals are computed from.

A *unit* is a conversation, or the batch that was answered at once: the smallest thing with a time of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.bench.records import Reply
from paceline.errors import ConfigError

Numbers = npt.NDArray[np.float64]

_FIELDS = ("replies", "seconds", "tokens", "steps", "drafted", "accepted", "ttft_s")


@dataclass(frozen=True, slots=True)
class Samples:
    """Float arrays ``[units, repeats]``, sums over the replies of a unit (0 where it has none).

    ``units``: numbers of the conversations (or batches). ``replies``: how many. ``ttft_s``: time to the first
    token, the rest as :class:`~paceline.bench.records.Measured` has them.
    """

    units: tuple[int, ...]
    replies: Numbers
    seconds: Numbers
    tokens: Numbers
    steps: Numbers
    drafted: Numbers
    accepted: Numbers
    ttft_s: Numbers

    @property
    def shape(self) -> tuple[int, int]:
        return self.seconds.shape[0], self.seconds.shape[1]

    @classmethod
    def of(cls, replies: Sequence[Reply], units: Sequence[int], repeats: Sequence[int]) -> Samples:
        """Return the samples of ``replies`` on the given rows and columns."""
        rows, columns = ({key: i for i, key in enumerate(keys)} for keys in (units, repeats))
        arrays = {name: np.zeros((len(rows), len(columns))) for name in _FIELDS}
        for reply in replies:
            measured, cell = reply.measured, (rows[reply.unit], columns[reply.repeat])
            arrays["replies"][cell] += 1
            arrays["seconds"][cell] += measured.seconds
            arrays["tokens"][cell] += len(measured.token_ids)
            arrays["steps"][cell] += measured.num_steps
            arrays["drafted"][cell] += measured.num_draft_tokens
            arrays["accepted"][cell] += measured.num_accepted_tokens
            arrays["ttft_s"][cell] += measured.deliveries[0].seconds if measured.deliveries else 0.0
        return cls(tuple(units), **arrays)

    def to_json(self) -> dict[str, Any]:
        """Return plain data; seconds to the microsecond."""
        values: dict[str, Any] = {name: np.round(getattr(self, name), 6).tolist() for name in _FIELDS}
        return {"units": list(self.units), **values}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any], where: str) -> Samples:
        """Return the samples of :meth:`to_json`. Raises ``ConfigError`` for anything else."""
        try:
            units = tuple(int(unit) for unit in plain["units"])
            arrays = {name: np.array(plain[name], dtype=np.float64) for name in _FIELDS}
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{where}: the samples cannot be read ({error}); run the bench again"
            ) from error
        shapes = {array.shape for array in arrays.values()}
        (shape,) = shapes if len(shapes) == 1 else ((),)
        if len(shape) != 2 or shape[0] != len(units) or 0 in shape:
            raise ConfigError(f"{where}: samples of the shapes {sorted(shapes)}: run the bench again")
        return cls(units, **arrays)


def unit_numbers(*groups: Sequence[Reply]) -> tuple[list[int], list[int]]:
    """Return the units and the repeats of replies, in order."""
    replies = [reply for group in groups for reply in group]
    return sorted({reply.unit for reply in replies}), sorted({reply.repeat for reply in replies})
