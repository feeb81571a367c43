"""Replay recorded replies through the drafters, without a model: tokens per step, cost, microseconds.

    python benchmarks/replay_drafters.py TRACES.jsonl [--drafter suffix ...] [--budget 7] [--costs FILE]

A trace is one JSON object per line: ``prompt`` and ``reply`` (token ids), ``category`` and ``mode`` (labels),
and ``top`` (the target's 8 likeliest tokens at each reply position, best first; ``recycle`` and ``auto``
learn from it); ``record_traces.py`` writes such files. The continuation is known, so each draft is verified
by comparison; that equals a greedy target, and a sampled one whose noise is tied to positions. ``speed`` is
tokens per step over the mean cost of a step by the cost table, drafting included: the speed that the table
predicts, plain decoding being 1. ``--costs`` takes a table that ``paceline profile`` has written; without it
the conservative one counts. Traces with what a draft head said (``record_traces.py --head``) let ``auto`` and
``eagle3`` use it. Rows the target would compute for rejected nodes are not in a trace, so ``recycle`` does a
little better live. The guard (control/guard.py) stands before every draft of ``auto``, as in an engine.
``--others N`` decides as in a batch with N other requests that draft nothing.

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
from typing import Any

import numpy as np
from head_traces import RecordedHead, recorded_drafter, states_of

from paceline.config import Acceptance
from paceline.control.default_costs import CONSERVATIVE_COSTS
from paceline.control.guard import Guard
from paceline.drafters.auto import AutoDrafter, AutoOptions, AutoSession
from paceline.drafters.base import DraftContext, Drafter, DraftSession
from paceline.drafters.eagle3 import Eagle3Options, Eagle3Session
from paceline.drafters.ngram import NgramDrafter
from paceline.drafters.prediction import PredictionDrafter
from paceline.drafters.recycle import RecycleDrafter
from paceline.drafters.suffix import SuffixDrafter
from paceline.drafters.verify_cost import VerifyCost
from paceline.records import (
    ALONE,
    EMPTY_DRAFT,
    BatchLoad,
    Draft,
    FloatArray,
    IntArray,
    StepObservation,
    TokenLaw,
)
from paceline.theory.cost_table import CostTable
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
    head: tuple[Any, ...] = ()


@dataclass
class Tally:
    """Sums over the replayed steps of one group."""

    tokens: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    cost: float = 0.0
    drafting: float = 0.0
    seconds: float = 0.0
    slowest: float = 0.0
    start_seconds: float = 0.0
    accepted_lengths: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def count(self, step: StepObservation, cost: float, drafting: float, seconds: float) -> None:
        """Count one verified step."""
        self.tokens += len(step.committed)
        self.steps += 1
        self.drafted += len(step.draft)
        self.accepted += step.num_accepted_tokens
        self.cost += cost
        self.drafting += drafting
        self.seconds += seconds
        self.slowest = max(self.slowest, seconds)
        self.accepted_lengths[step.num_accepted_tokens] += 1


class NoSampler:
    """Stands in for the request's sampler: these drafters never draw."""

    def draw(
        self, logits: FloatArray, path: tuple[int, ...], ids: IntArray | None = None
    ) -> tuple[int, TokenLaw | None]:
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
                tuple(row.get("head", ())),
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


@dataclass(frozen=True)
class Rules:
    """How a replay decides and counts. ``load``: the forward that drafts join."""

    table: CostTable
    budget: int = 7
    load: BatchLoad = ALONE
    guarded: bool = True


def replay_steps(session: DraftSession, name: str, trace: Trace, rules: Rules, tally: Tally) -> None:
    """Run one reply through a session: first token from the prompt, then draft, verify, commit."""
    reply, top = trace.reply, trace.top
    guard = Guard(rules.table, name)
    begin = time.perf_counter()
    root = np.array(trace.prompt[-1:], np.int32)
    states = states_of(0, len(trace.prompt)) if trace.head else None
    session.observe(StepObservation(reply[:1], 0, EMPTY_DRAFT, root, top[:1], states))
    tally.start_seconds += time.perf_counter() - begin
    done = 1
    while done < len(reply):
        begin = time.perf_counter()
        budget = min(rules.budget, len(reply) - done)
        if rules.guarded and name == "auto":
            budget = guard.room(budget, rules.load)
        draft = proposed(session, budget, rules.load)
        elapsed = time.perf_counter() - begin
        step = verified_step(trace, draft, done)
        begin = time.perf_counter()
        session.observe(step)
        elapsed += time.perf_counter() - begin
        drafting = drafting_cost(session, name, draft, rules.table) if budget else 0.0
        cost = 1.0 + guard.settle(rules.load, len(draft), drafting, len(step.committed))
        tally.count(step, cost, drafting, elapsed)
        done += len(step.committed)


def proposed(session: DraftSession, budget: int, load: BatchLoad) -> Draft:
    """Return the session's draft, told the load if it adapts to it."""
    if not budget:
        return EMPTY_DRAFT
    if isinstance(session, AutoSession | Eagle3Session):
        session.meet(load)
    return session.propose(budget)


def verified_step(trace: Trace, draft: Draft, done: int) -> StepObservation:
    """Return what the engine would tell of ``draft`` behind the first ``done`` tokens of the reply."""
    reply = trace.reply
    accepted = min(accepted_path(draft.tree, reply[done:]), len(reply) - done - 1)
    place = len(trace.prompt) + done - 1
    return StepObservation(
        reply[done : done + accepted + 1],
        accepted,
        draft,
        np.array(reply[done - 1 : done + accepted], np.int32),
        trace.top[done : done + accepted + 1],
        states_of(place, place + accepted + 1) if trace.head else None,
    )


def drafting_cost(session: DraftSession, name: str, draft: Draft, table: CostTable) -> float:
    """Return what drafting has cost in the last step, in one-row forwards."""
    if isinstance(session, AutoSession | Eagle3Session):
        return session.spent
    levels = max(draft.tree.depths, default=0)
    return table.draft(name, levels, len(draft)) if table.knows(name) else 0.0


def replay(
    drafter: Drafter, traces: list[Trace], rules: Rules, head: RecordedHead | None = None
) -> Iterator[tuple[Trace, Tally]]:
    """Yield each trace with its tally; the drafter keeps what it shares from one trace to the next."""
    for number, trace in enumerate(traces):
        tally = Tally()
        if head is not None:
            head.trees, head.prompt_length = list(trace.head), len(trace.prompt)
        rule: Acceptance = "greedy" if trace.mode == "greedy" else "coupled"
        begin = time.perf_counter()
        session = drafter.start(DraftContext(str(number), trace.prompt, NoSampler(), trace.prediction, rule))
        tally.start_seconds += time.perf_counter() - begin
        replay_steps(session, drafter.name.partition(":")[0], trace, rules, tally)
        session.stop()
        yield trace, tally


def add(total: Tally, part: Tally) -> None:
    """Add ``part`` to ``total``."""
    for name in ("tokens", "steps", "drafted", "accepted", "cost", "drafting", "seconds", "start_seconds"):
        setattr(total, name, getattr(total, name) + getattr(part, name))
    total.slowest = max(total.slowest, part.slowest)
    for length, count in part.accepted_lengths.items():
        total.accepted_lengths[length] += count


def describe(label: str, tally: Tally) -> str:
    """Return one table row."""
    steps = max(tally.steps, 1)
    return (
        f"{label:36s} {tally.tokens:6d} {tally.tokens / steps:7.2f} {tally.drafted / steps:7.2f} "
        f"{tally.accepted / max(tally.drafted, 1):7.2f} {tally.drafting / steps:7.3f} "
        f"{tally.tokens / max(tally.cost, 1e-9):7.3f} "
        f"{1e6 * tally.seconds / steps:7.0f} {1e6 * tally.slowest:8.0f}"
    )


def parse_arguments() -> argparse.Namespace:
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
    parser.add_argument("--costs", type=Path, help="JSON of a cost table (default: the conservative one)")
    parser.add_argument("--others", type=int, default=0, help="other requests in the batch")
    parser.add_argument("--unguarded", action="store_true", help="auto without the guard")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    table = CONSERVATIVE_COSTS
    if arguments.costs is not None:
        table = CostTable.from_json(json.loads(arguments.costs.read_text()))
    load = BatchLoad(1 + arguments.others, 1 + arguments.others)
    rules = Rules(table, arguments.budget, load, not arguments.unguarded)
    traces = read_traces(arguments.traces, arguments.loops)
    print(f"{'':36s} tokens  per step drafted accept   draft   speed  µs/step  slowest")
    for name in arguments.drafter or ["ngram", "suffix", "recycle", "prediction", "auto"]:
        totals: dict[str, Tally] = defaultdict(Tally)
        for mode in sorted({trace.mode for trace in traces}):
            # A fresh drafter per mode: the replies of the other mode answer the same prompts.
            chosen = [trace for trace in traces if trace.mode == mode]
            head = RecordedHead() if all(trace.head for trace in chosen) else None
            drafter = built_drafter(name, arguments.vocab_size, table, head)
            for trace, tally in replay(drafter, chosen, rules, head):
                add(totals[f"{mode} {trace.category}"], tally)
                add(totals[mode], tally)
        for label in sorted(totals):
            print(describe(f"{name} {label}", totals[label]))


def built_drafter(name: str, vocab_size: int, table: CostTable, head: RecordedHead | None = None) -> Drafter:
    """Build a drafter without a model, planning by ``table``; ``head``: recorded trees, if there are any."""
    drafting = table.cost_of("eagle3")
    cost = VerifyCost.of(table)
    options = Eagle3Options(verify_cost=cost, step_cost=drafting.per_level, catch_up_cost=drafting.fixed)
    recorded = None if head is None else recorded_drafter(head, vocab_size, options)
    if name == "eagle3":
        if recorded is None:
            raise SystemExit("the traces hold no head: record them with record_traces.py --head")
        return recorded
    builders: dict[str, Callable[[], Drafter]] = {
        "ngram": NgramDrafter,
        "suffix": SuffixDrafter,
        "recycle": lambda: RecycleDrafter(vocab_size),
        "prediction": PredictionDrafter,
        "auto": lambda: AutoDrafter(
            AutoOptions(verify_cost=cost, ask_cost=table.cost_of("auto").fixed, eagle3=options),
            recorded,
        ),
    }
    return builders[name]()


if __name__ == "__main__":
    main()
