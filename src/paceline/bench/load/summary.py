"""The requests of a point in numbers. Definitions as in vLLM's and guidellm's reports; times are seconds.

TTFT: from sending to the first piece of text. E2E: from sending to the last event of the reply. TPOT:
(E2E − TTFT) ÷ (tokens − 1), one figure a reply. ITL per step: the gap before each later piece of text. ITL
per token: such a gap divided over the tokens the piece brings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from paceline.bench.load.counters import Speculation, from_counters, from_timings
from paceline.bench.load.driver import PointRun
from paceline.bench.load.goodput import Objective
from paceline.bench.load.stream import TimedReply

Latency = Mapping[str, float]
"""p50, p95, p99, mean."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """Replies that meet ``objective``: per second of the point, and of all requests that were sent."""

    objective: Objective
    requests_per_s: float
    share: float


@dataclass(frozen=True, slots=True)
class PointSummary:
    """One concurrency or rate in numbers.

    ``seconds``: first request due to last reply read. ``tokens_per_s``: output tokens of whole replies ÷
    seconds. ``tokens_per_s_per_request``: of each reply, tokens ÷ E2E. ``errors``: failed requests by kind,
    ``error_examples``: what the first of each kind said. ``tokens_counted_by``: where token counts come from
    (``usage``, ``timings``, ``chunks``; the weakest one met). ``itl_token_from``: ``server counts``, or
    ``mean of each reply`` where a piece's tokens are not told. A latency is ``None`` when no reply has it.
    ``late_s``: how far the client fell behind its own schedule, at most.
    """

    concurrency: int | None
    rate: float | None
    num_requests: int
    num_ok: int
    errors: Mapping[str, int]
    error_examples: Mapping[str, str]
    seconds: float
    requests_per_s: float
    output_tokens: int
    prompt_tokens: int | None
    tokens_per_s: float
    tokens_per_s_per_request: Latency
    tokens_counted_by: str
    ttft_s: Latency
    tpot_s: Latency | None
    itl_token_s: Latency | None
    itl_token_from: str
    itl_step_s: Latency | None
    e2e_s: Latency
    chunks_per_reply: float
    late_s: float
    goodput: Goodput | None
    speculation: Speculation | None
    cost_per_million_tokens: float | None


def measures_of(reply: TimedReply) -> dict[str, float | None]:
    """Return ``ttft_s``, ``tpot_s`` (``None`` for one token) and ``e2e_s`` of a reply."""
    ttft, e2e = reply.chunks[0].at - reply.sent, reply.ended - reply.sent
    later = reply.num_output_tokens - 1
    return {"ttft_s": ttft, "tpot_s": (e2e - ttft) / later if later > 0 else None, "e2e_s": e2e}


def latency(values: Iterable[float | None]) -> Latency | None:
    """Return percentiles (linear between ranks) and the mean of what is there, ``None`` for nothing."""
    known = np.array([value for value in values if value is not None])
    if not known.size:
        return None
    p50, p95, p99 = np.percentile(known, (50, 95, 99)).tolist()
    return {"p50": p50, "p95": p95, "p99": p99, "mean": float(known.mean())}


def step_gaps(reply: TimedReply) -> list[float]:
    """Return the times between pieces of text."""
    return [after.at - before.at for before, after in pairwise(reply.chunks)]


def token_gaps(reply: TimedReply) -> list[float] | None:
    """Return one gap for each token behind the first piece, ``None`` when it is not known how they came.

    Those that came along with the first token have none, as offline (:mod:`paceline.bench.latency`).
    """
    counts = [chunk.tokens for chunk in reply.chunks]
    if None in counts and len(counts) == reply.num_output_tokens:
        counts = [1] * len(counts)  # as many pieces as tokens
    if None in counts:
        return None
    gaps: list[float] = []
    for gap, count in zip(step_gaps(reply), counts[1:], strict=True):
        tokens = max(1, count or 0)
        gaps += [gap / tokens] * tokens
    return gaps


def _token_gaps(replies: Sequence[TimedReply]) -> tuple[list[float], str]:
    gaps: list[float] = []
    source = "server counts"
    for reply in replies:
        own = token_gaps(reply)
        if own is None:
            source = "mean of each reply"
            tpot = measures_of(reply)["tpot_s"]
            own = [] if tpot is None else [tpot] * (reply.num_output_tokens - 1)
        gaps += own
    return gaps, source


def _speculation(point: PointRun) -> Speculation | None:
    counted = from_counters(*point.counters)
    if counted is not None:
        return counted
    known = [reply for reply in point.replies if reply.drafted is not None]
    if not known:
        return None
    return from_timings(
        sum(reply.drafted or 0 for reply in known),
        sum(reply.accepted or 0 for reply in known),
        sum(reply.num_output_tokens for reply in point.replies),
    )


def _goodput(point: PointRun, objective: Objective | None, seconds: float) -> Goodput | None:
    if objective is None:
        return None
    good = sum(objective.is_met(measures_of(reply)) for reply in point.replies)
    return Goodput(objective, good / seconds, good / (len(point.replies) + len(point.failed)))


def summarize_point(
    point: PointRun, objective: Objective | None = None, price_per_hour: float | None = None
) -> PointSummary:
    """Return the summary of a point with at least one reply."""
    replies, seconds = point.replies, point.ended - point.started
    tokens = sum(reply.num_output_tokens for reply in replies)
    prompts = [reply.num_prompt_tokens for reply in replies]
    price = None if price_per_hour is None else price_per_hour / 3600 * 1e6 / (tokens / seconds)
    return PointSummary(
        concurrency=point.concurrency,
        rate=point.rate,
        num_requests=len(replies) + len(point.failed),
        num_ok=len(replies),
        errors=dict(Counter(failure.kind for failure in point.failed)),
        error_examples={failure.kind: failure.detail for failure in reversed(point.failed)},
        seconds=seconds,
        requests_per_s=len(replies) / seconds,
        output_tokens=tokens,
        prompt_tokens=None if None in prompts else sum(count or 0 for count in prompts),
        tokens_per_s=tokens / seconds,
        tokens_counted_by=max((reply.counted_by for reply in replies), key=_WEAKNESS.index),
        chunks_per_reply=sum(len(reply.chunks) for reply in replies) / len(replies),
        late_s=point.late,
        goodput=_goodput(point, objective, seconds),
        speculation=_speculation(point),
        cost_per_million_tokens=price,
        **_latencies(replies),
    )


def _latencies(replies: Sequence[TimedReply]) -> dict[str, Any]:
    """Return the fields of a summary that are percentiles, and where those of ITL per token come from."""
    measures = [measures_of(reply) for reply in replies]
    gaps, source = _token_gaps(replies)
    return {
        **{name: latency(m[name] for m in measures) for name in ("ttft_s", "tpot_s", "e2e_s")},
        "itl_token_s": latency(gaps),
        "itl_token_from": source,
        "itl_step_s": latency(gap for reply in replies for gap in step_gaps(reply)),
        "tokens_per_s_per_request": latency(
            reply.num_output_tokens / max(reply.ended - reply.sent, 1e-9) for reply in replies
        ),
    }


_WEAKNESS = ("usage", "timings", "chunks")
