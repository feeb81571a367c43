"""How long a user waits: TTFT, TPOT and ITL of measured replies.

Definitions as vLLM's and guidellm's: TTFT, from handing the prompt over to the first token. TPOT of a reply,
(last token - first token) ÷ (tokens - 1). ITL per *step*: from one delivery to the next, however many tokens
it brings, which is what a reader of a stream sees. ITL per *token*: the same waits, each shared by the tokens
that ended it, so that its mean can be compared between drafters that deliver one token and those that deliver
several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from paceline.bench.records import Delivery, Measured


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of many values: the median, the 95th and 99th percentile (linear between ranks), and the mean."""

    p50: float
    p95: float
    p99: float
    mean: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Percentiles | None:
        """Return those of ``values``; ``None`` without any."""
        if not values:
            return None
        p50, p95, p99 = (float(p) for p in np.percentile(values, (50, 95, 99)))
        return cls(p50, p95, p99, float(np.mean(values)))


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of many replies, in seconds; ``None`` where no reply has such a value (one token has no TPOT).

    ``request_tokens_per_s``: tokens of a reply ÷ time from handing its prompt over to its last token.
    """

    ttft_s: Percentiles | None
    tpot_s: Percentiles | None
    itl_token_s: Percentiles | None
    itl_step_s: Percentiles | None
    request_tokens_per_s: Percentiles | None

    @classmethod
    def of(cls, replies: Sequence[Measured]) -> Latencies:
        """Return those of replies, pooled."""
        given = [reply.deliveries for reply in replies if reply.deliveries]
        return cls(
            ttft_s=Percentiles.of([deliveries[0].seconds for deliveries in given]),
            tpot_s=Percentiles.of([wait for deliveries in given for wait in _tpot(deliveries)]),
            itl_token_s=Percentiles.of([wait for deliveries in given for wait in _token_waits(deliveries)]),
            itl_step_s=Percentiles.of([wait for deliveries in given for wait, _ in _waits(deliveries)]),
            request_tokens_per_s=Percentiles.of([_speed(deliveries) for deliveries in given]),
        )


def _waits(deliveries: Sequence[Delivery]) -> Iterator[tuple[float, int]]:
    """Yield each wait between two deliveries and the tokens that ended it."""
    for before, after in pairwise(deliveries):
        yield after.seconds - before.seconds, after.num_tokens


def _token_waits(deliveries: Sequence[Delivery]) -> Iterator[float]:
    for wait, num_tokens in _waits(deliveries):
        yield from [wait / num_tokens] * num_tokens


def _tpot(deliveries: Sequence[Delivery]) -> Iterator[float]:
    """Yield the reply's TPOT if it has one.

    A first delivery of several tokens is over at once: only the tokens behind it took the time behind it.
    """
    rest = sum(delivery.num_tokens for delivery in deliveries[1:])
    if rest:
        yield (deliveries[-1].seconds - deliveries[0].seconds) / rest


def _speed(deliveries: Sequence[Delivery]) -> float:
    return sum(delivery.num_tokens for delivery in deliveries) / deliveries[-1].seconds
