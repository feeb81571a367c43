"""When the requests of an open loop come, whatever the server does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np

Arrivals = Literal["poisson", "fixed"]
ARRIVALS: tuple[Arrivals, ...] = get_args(Arrivals)


def arrival_times(
    rate: float, arrivals: Arrivals, seed: int, requests: int | None, duration: float | None
) -> Iterator[float]:
    """Yield seconds from the start, rising: ``requests`` of them, or those before ``duration``.

    ``poisson``: gaps drawn from the exponential law of mean 1 ÷ rate, the first one included; a function of
    (rate, seed) alone. ``fixed``: one each 1 ÷ rate, the first at once.
    """
    rng = np.random.default_rng(seed)
    time, count = 0.0, 0
    while requests is None or count < requests:
        if arrivals == "poisson":
            time += float(rng.exponential(1.0 / rate))
        else:
            time = count / rate
        if duration is not None and time >= duration:
            return
        yield time
        count += 1
