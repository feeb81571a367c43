"""Measuring several engines in turns: every repeat visits each engine once before the next repeat starts.

So a slow minute of the machine falls on all of them alike. Results are medians over all repeats.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from peering.process import PeerProcess
from peering.protocol import PeerUnavailableError


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. ``rows``: widths of a forward; ``depth``: tokens already in the cache."""

    parts: tuple[str, ...]
    rows: tuple[int, ...]
    depth: int
    forwards: int
    prompt_tokens: int
    max_tokens: int
    repeats: int


@dataclass(slots=True)
class Replies:
    """All replies of one engine in one mode. ``seconds``: one sum over all prompts per repeat.

    ``texts``: the token ids of the last repeat's replies, one entry per prompt.
    """

    texts: list[list[int]] = field(default_factory=list)
    num_tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def tokens_per_s(self) -> float:
        """Median over the repeats of tokens ÷ seconds, prompt processing included."""
        return statistics.median(n / s for n, s in zip(self.num_tokens, self.seconds, strict=True))


@dataclass(slots=True)
class Results:
    """Everything measured, by engine name. Missing entries: the engine cannot do it, see ``notes``."""

    forward_ms: dict[str, dict[int, float]] = field(default_factory=dict)
    prompt_tokens_per_s: dict[str, float] = field(default_factory=dict)
    replies: dict[str, Replies] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def _attempt(results: Results, failed: set[str], key: str, action: Callable[[], Any]) -> Any:
    """Run ``action``; a failure is noted once and takes ``key`` out of this part."""
    if key in failed:
        return None
    try:
        return action()
    except (PeerUnavailableError, RuntimeError) as error:
        failed.add(key)
        results.notes.append(f"{key}: {error}")
        return None


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure_forwards(peers: Mapping[str, PeerProcess], plan: Plan, results: Results) -> None:
    """Fill ``forward_ms``: the median milliseconds for each width."""
    seconds: dict[str, dict[int, list[float]]] = {}
    failed: set[str] = set()
    for repeat in range(plan.repeats + 1):  # the first round warms up
        for name, peer in peers.items():
            for rows in plan.rows:
                call = {"num_rows": rows, "depth": plan.depth, "repeats": plan.forwards if repeat else 2}
                new = _attempt(results, failed, name, lambda p=peer, c=call: p.call("forward", **c))
                if new and repeat:
                    seconds.setdefault(name, {}).setdefault(rows, []).extend(new)
        _progress(f"forwards: round {repeat} of {plan.repeats}")
    for name, by_rows in seconds.items():
        results.forward_ms[name] = {r: 1e3 * statistics.median(values) for r, values in by_rows.items()}


def measure_prompts(peers: Mapping[str, PeerProcess], plan: Plan, results: Results) -> None:
    """Fill ``prompt_tokens_per_s``."""
    seconds: dict[str, list[float]] = {}
    failed: set[str] = set()
    for repeat in range(plan.repeats + 1):
        for name, peer in peers.items():
            call = {"num_tokens": plan.prompt_tokens, "repeats": 2 if repeat else 1}
            new = _attempt(results, failed, name, lambda p=peer, c=call: p.call("prompt", **c))
            if new and repeat:
                seconds.setdefault(name, []).extend(new)
        _progress(f"prompt processing: round {repeat} of {plan.repeats}")
    for name, values in seconds.items():
        results.prompt_tokens_per_s[name] = plan.prompt_tokens / statistics.median(values)


def measure_replies(
    peers: Mapping[str, PeerProcess],
    plan: Plan,
    prompts: Sequence[Sequence[int]],
    eos: Sequence[int],
    results: Results,
) -> None:
    """Fill ``replies``: every engine plain, and with its own speculation."""
    failed: set[str] = set()
    modes = [(name, speculate) for name in peers for speculate in (False, True)]
    for repeat in range(plan.repeats + 1):
        for name, speculate in modes:
            key = f"{name} (speculative)" if speculate else name
            texts: list[list[int]] = []
            seconds = 0.0
            for prompt in prompts if repeat else prompts[:1]:
                call = {"prompt": prompt, "max_tokens": plan.max_tokens, "eos": eos, "speculate": speculate}
                reply = _attempt(results, failed, key, lambda n=name, c=call: peers[n].call("generate", **c))
                if reply is not None:
                    texts.append(reply["token_ids"])
                    seconds += reply["seconds"]
            if repeat and key not in failed:
                entry = results.replies.setdefault(key, Replies())
                entry.texts = texts
                entry.num_tokens.append(sum(map(len, texts)))
                entry.seconds.append(seconds)
        _progress(f"replies: round {repeat} of {plan.repeats}")
