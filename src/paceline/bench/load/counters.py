"""What a server counts of its own speculation: Prometheus counters, and llama.cpp's ``timings``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import httpx2

PREFIXES = ("paceline:", "vllm:")
_NAMES = {
    "spec_decode_num_drafts": "num_drafts",
    "spec_decode_num_draft_tokens": "num_draft_tokens",
    "spec_decode_num_accepted_tokens": "num_accepted_tokens",
}
_AT = "spec_decode_num_accepted_tokens_per_pos"
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\S+)?")
_POSITION = re.compile(r'(?:^|,)\s*position="(\d+)"')


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts since the server's start, summed over engines and models. ``accepted_at``: by depth − 1."""

    num_drafts: float
    num_draft_tokens: float
    num_accepted_tokens: float
    accepted_at: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Speculation:
    """What was drafted and kept for the requests of one point. Counts: design.md §7.

    ``num_drafts`` and ``acceptance_rate_at`` are ``None`` where the server does not tell.
    ``tokens_per_step``: output tokens ÷ verify steps; from Prometheus counters 1 + accepted ÷ drafts, steps
    without a draft left out. ``source``: where the counts come from.
    """

    source: str
    num_drafts: int | None
    num_draft_tokens: int
    num_accepted_tokens: int
    acceptance_rate: float | None
    acceptance_rate_at: tuple[float, ...] | None
    tokens_per_step: float | None


def parse_metrics(text: str) -> Counters | None:
    """Return the speculation counters in Prometheus text, ``None`` when it holds none.

    Ours have vLLM's names behind ``paceline:``, and may stand there under both: the first of ``PREFIXES``
    that is there counts. Names end with ``_total`` or not, as exporters differ.
    """
    found = (_parse_prefix(text, prefix) for prefix in PREFIXES)
    return next((counters for counters in found if counters is not None), None)


def _parse_prefix(text: str, prefix: str) -> Counters | None:
    sums: dict[str, float] = defaultdict(float)
    at: dict[int, float] = defaultdict(float)
    for line in text.splitlines():
        match = _LINE.fullmatch(line.strip())
        if match is None or not match[1].startswith(prefix):
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        name = match[1].removeprefix(prefix).removesuffix("_total")
        position = _POSITION.search(match[2] or "")
        if name in _NAMES:
            sums[_NAMES[name]] += value
        elif name == _AT and position:
            at[int(position[1])] += value
    if "num_draft_tokens" not in sums:
        return None
    return Counters(sums["num_drafts"], sums["num_draft_tokens"], sums["num_accepted_tokens"], dict(at))


async def read_counters(client: httpx2.AsyncClient, root: str) -> Counters | None:
    """Return the counters at ``/metrics``, ``None`` where there are none: they are extra, not required."""
    try:
        answer = await client.get(root + "/metrics", timeout=10.0)
    except (httpx2.HTTPError, OSError):
        return None
    return parse_metrics(answer.text) if answer.status_code == 200 else None


def from_counters(before: Counters | None, after: Counters | None) -> Speculation | None:
    """Return what was counted between two readings; ``None`` without both, or after a server's restart."""
    if before is None or after is None:
        return None
    drafts = round(after.num_drafts - before.num_drafts)
    drafted = round(after.num_draft_tokens - before.num_draft_tokens)
    accepted = round(after.num_accepted_tokens - before.num_accepted_tokens)
    if min(drafts, drafted, accepted) < 0:
        return None
    depths = sorted(after.accepted_at)
    rates = tuple((after.accepted_at[d] - before.accepted_at.get(d, 0.0)) / max(1, drafts) for d in depths)
    return Speculation(
        "metrics",
        drafts,
        drafted,
        accepted,
        accepted / drafted if drafted else None,
        rates if drafts and depths else None,
        1 + accepted / drafts if drafts else None,
    )


def from_timings(drafted: int, accepted: int, tokens: int) -> Speculation:
    """Return what llama.cpp's replies add up to: each verify step gives one token beside those accepted."""
    steps = tokens - accepted
    return Speculation(
        "timings",
        None,
        drafted,
        accepted,
        accepted / drafted if drafted else None,
        None,
        tokens / steps if steps > 0 else None,
    )
