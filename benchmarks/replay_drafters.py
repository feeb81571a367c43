"""Replay recorded replies through the drafters, without a model: tokens per step, cost, microseconds.

    python benchmarks/replay_drafters.py TRACES.jsonl [--drafter suffix ...] [--budget 7]

A trace is one JSON object per line: ``prompt`` and ``reply`` (token ids), ``category`` and ``mode`` (labels),
and ``top`` (the target's 8 likeliest tokens at each reply position, best first; ``recycle`` and ``auto``
learn from it); ``record_traces.py`` writes such files. The continuation is known, so each draft is verified
by comparison; that equals a greedy target, and a sampled one whose noise is tied to positions. ``speed`` is
tokens per step over the mean verify cost r(rows) of ``VerifyCost``: what the drafts would gain if drafting
itself were free. Rows the target would compute for rejected nodes are not in a trace, so ``recycle`` does a
little better live.

Texts that loop make every copying drafter look brilliant: traces with less than half distinct 4-grams are
left out unless ``--loops`` is given.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from paceline.drafters.auto import AutoDrafter
from paceline.drafters.base import DraftContext, Drafter, DraftSession
from paceline.drafters.ngram import NgramDrafter
from paceline.drafters.prediction import PredictionDrafter
from paceline.drafters.recycle import RecycleDrafter
from paceline.drafters.suffix import SuffixDrafter
from paceline.drafters.verify_cost import VerifyCost
from paceline.records import FloatArray, StepObservation, TokenLaw
from paceline.tree import ROOT, TokenTree


@dataclass(frozen=True)
class Trace:
    """One recorded reply. ``top`` int32 [len(reply), k]."""

    category: str
    mode: str
    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    top: np.ndarray
    prediction: tuple[int, ...] = ()


@dataclass
class Tally:
    """Sums over the replayed steps of one group."""

    tokens: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    slowest: float = 0.0
    start_seconds: float = 0.0
    accepted_lengths: dict[int, int] = field(default_factory=lambda: defaultdict(int))


class NoSampler:
    """Stands in for the request's sampler: these drafters never draw."""

    def draw(self, logits: FloatArray, path: tuple[int, ...]) -> tuple[int, TokenLaw | None]:
        raise NotImplementedError("replays have no draft model")


def distinct_share(tokens: tuple[int, ...], n: int = 4) -> float:
    """Return the share of distinct n-grams (1.0 when there are none)."""
    grams = [tokens[i : i + n] for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def read_traces(path: Path, loops: bool) -> list[Trace]:
    """Read traces; loops are left out unless asked for."""
    traces = []
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if not loops and distinct_share(tuple(row["reply"])) < 0.5:
            continue
        traces.append(
            Trace(
                row["category"],
                row["mode"],
                tuple(row["prompt"]),
                tuple(row["reply"]),
                np.array(row["top"], dtype=np.int32),
                tuple(row.get("prediction", ())),
            )
        )
    return traces


def accepted_path(tree: TokenTree, truth: tuple[int, ...]) -> int:
    """Return how many tokens of ``truth`` the tree holds from its root on."""
    node, depth = ROOT, 0
    while depth < len(truth):
        children = {tree.tokens[child]: child for child in tree.children(node)}
        if truth[depth] not in children:
            break
        node = children[truth[depth]]
        depth += 1
    return depth


def replay_steps(session: DraftSession, trace: Trace, budget: int, cost: VerifyCost, tally: Tally) -> None:
    """Run one reply through a session: first token from the prompt, then draft, verify, commit."""
    reply, top = trace.reply, trace.top
    begin = time.perf_counter()
    session.observe(
        StepObservation(
            reply[:1], 0, verified_tokens=np.array(trace.prompt[-1:], np.int32), top_tokens=top[:1]
        )
    )
    tally.start_seconds += time.perf_counter() - begin
    done = 1
    while done < len(reply):
        begin = time.perf_counter()
        draft = session.propose(min(budget, len(reply) - done))
        elapsed = time.perf_counter() - begin
        accepted = min(accepted_path(draft.tree, reply[done:]), len(reply) - done - 1)
        committed = reply[done : done + accepted + 1]
        verified = np.array(reply[done - 1 : done + accepted], np.int32)
        step = StepObservation(committed, accepted, draft, verified, top[done : done + accepted + 1])
        begin = time.perf_counter()
        session.observe(step)
        elapsed += time.perf_counter() - begin
        tally.seconds += elapsed
        tally.slowest = max(tally.slowest, elapsed)
        tally.steps += 1
        tally.tokens += len(committed)
        tally.drafted += len(draft)
        tally.accepted += accepted
        tally.accepted_lengths[accepted] += 1
        tally.cost += cost.at(1 + len(draft))
        done += len(committed)


def replay(
    drafter: Drafter, traces: list[Trace], budget: int, cost: VerifyCost
) -> Iterator[tuple[Trace, Tally]]:
    """Yield each trace with its tally; the drafter keeps what it shares from one trace to the next."""
    for number, trace in enumerate(traces):
        tally = Tally()
        begin = time.perf_counter()
        session = drafter.start(DraftContext(str(number), trace.prompt, NoSampler(), trace.prediction))
        tally.start_seconds += time.perf_counter() - begin
        replay_steps(session, trace, budget, cost, tally)
        session.stop()
        yield trace, tally


def add(total: Tally, part: Tally) -> None:
    """Add ``part`` to ``total``."""
    for name in ("tokens", "steps", "drafted", "accepted", "cost", "seconds", "start_seconds"):
        setattr(total, name, getattr(total, name) + getattr(part, name))
    total.slowest = max(total.slowest, part.slowest)
    for length, count in part.accepted_lengths.items():
        total.accepted_lengths[length] += count


def describe(label: str, tally: Tally) -> str:
    """Return one table row."""
    steps = max(tally.steps, 1)
    return (
        f"{label:36s} {tally.tokens:6d} {tally.tokens / steps:7.2f} {tally.drafted / steps:7.2f} "
        f"{tally.accepted / max(tally.drafted, 1):7.2f} {tally.tokens / max(tally.cost, 1e-9):7.2f} "
        f"{1e6 * tally.seconds / steps:7.0f} {1e6 * tally.slowest:8.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", type=Path)
    parser.add_argument(
        "--drafter", action="append", help="name; repeat for several (default: all without a model)"
    )
    parser.add_argument("--budget", type=int, default=7)
    parser.add_argument("--loops", action="store_true", help="keep replies with under half distinct 4-grams")
    parser.add_argument("--vocab-size", type=int, default=262_144)
    arguments = parser.parse_args()
    traces = read_traces(arguments.traces, arguments.loops)
    print(f"{'':36s} tokens  per step drafted accept   speed  µs/step  slowest")
    for name in arguments.drafter or ["ngram", "suffix", "recycle", "prediction", "auto"]:
        totals: dict[str, Tally] = defaultdict(Tally)
        for mode in sorted({trace.mode for trace in traces}):
            # A fresh drafter per mode: the replies of the other mode answer the same prompts.
            chosen = [trace for trace in traces if trace.mode == mode]
            drafter = cheap_drafter(name, arguments.vocab_size)
            for trace, tally in replay(drafter, chosen, arguments.budget, VerifyCost()):
                add(totals[f"{mode} {trace.category}"], tally)
                add(totals[mode], tally)
        for label in sorted(totals):
            print(describe(f"{name} {label}", totals[label]))


def cheap_drafter(name: str, vocab_size: int) -> Drafter:
    """Build a drafter that needs no model."""
    builders: dict[str, Callable[[], Drafter]] = {
        "ngram": NgramDrafter,
        "suffix": SuffixDrafter,
        "recycle": lambda: RecycleDrafter(vocab_size),
        "prediction": PredictionDrafter,
        "auto": lambda: AutoDrafter(vocab_size),
    }
    return builders[name]()


if __name__ == "__main__":
    main()
