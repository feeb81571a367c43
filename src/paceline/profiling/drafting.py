"""What a draft costs, for each drafter that Paceline has."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.drafters.base import DraftContext, Drafter
from paceline.drafters.draft_model import DraftModelDrafter
from paceline.drafters.eagle3 import Eagle3Drafter, Eagle3Head, Eagle3Options
from paceline.drafters.verify_cost import VerifyCost
from paceline.executors.base import ForwardBatch
from paceline.executors.eagle3 import DraftShape, Eagle3Executor
from paceline.kv.block_table import BlockTable
from paceline.profiling.timing import interleaved, typical
from paceline.records import (
    EMPTY_DRAFT,
    Draft,
    FloatArray,
    HiddenStates,
    IntArray,
    StepObservation,
    TokenLaw,
)
from paceline.sampling import kernels
from paceline.theory.cost_table import DraftCost
from paceline.tree import ROOT

BUDGET = 7
_WORDS = 40  # different tokens of the text that copying drafters are measured on
_FOLLOWERS = (
    0.7,
    0.2,
    0.1,
)  # how often each of a token's followers comes: drafts are right in part, as in use
_CATCH_UP = 3  # pairs that a head has missed since its last draft: what a good step commits
_PAIRS = 128
_LEVELS = 7
_MOST_TURNS = 24
# A toy model's forward takes less time than any drafter. What costs ten forwards never pays, so nothing is
# lost by not telling it from what costs a hundred.
_DEAREST = 10.0


@dataclass(frozen=True, slots=True)
class DraftTimes:
    """``fixed``, ``per_level``, ``per_node``: seconds, as in ``DraftCost``. ``parts``: what was measured."""

    fixed: float
    per_level: float
    per_node: float
    parts: Mapping[str, float]

    def cost(self, row_seconds: float) -> DraftCost:
        """Return the cost in one-row forwards of ``row_seconds``."""
        times = (self.fixed, self.per_level, self.per_node)
        return DraftCost(*(min(_DEAREST, seconds / row_seconds) for seconds in times))


def measure_cheap(
    drafter: Drafter, vocab_size: int, between: Callable[[], FloatArray], seconds: float
) -> DraftTimes:
    """Measure proposing and observing over a text that repeats in part, as texts do.

    ``between`` runs a one-row forward of the target and returns its logits [1, V]: drafting does not happen
    in warm caches. Nor do forwards then: what one takes longer behind a drafter than behind another forward
    counts as the drafter's. So do the successors that some ask for, for each verified row.
    """
    text, follower = _text(vocab_size)
    wanted, place = drafter.capabilities.num_top_tokens, _PAIRS
    prediction = text[place:] if drafter.name == "prediction" else ()
    session = drafter.start(DraftContext("profile", text[:place], _Argmax(), prediction))
    session.observe(
        _observation(EMPTY_DRAFT, text[place : place + 1], text[place - 1], follower, between(), wanted)
    )
    spent: list[float] = []
    picked: list[float] = []  # of one row's successors, as the engine picks them for each
    forwards = _Forwards(between)
    end = time.perf_counter() + seconds
    while len(spent) < _MOST_TURNS and (len(spent) < 2 or time.perf_counter() < end):
        logits = forwards.run(end)
        begin = time.perf_counter()
        if wanted:
            kernels.top_ids(logits, wanted)
        picked.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        draft = session.propose(BUDGET)
        drafted = time.perf_counter() - begin
        committed = _committed(draft, text[place + 1 :])
        step = _observation(draft, committed, text[place], follower, logits, wanted)
        begin = time.perf_counter()
        session.observe(step)
        spent.append(drafted + time.perf_counter() - begin)
        place += len(committed)
    session.stop()
    asked, slowed = typical(spent), forwards.slowed()
    row = typical(picked) if wanted else 0.0
    parts = {"propose and observe": asked, "the forward behind it, slower by": slowed}
    return DraftTimes(asked + slowed + row, 0.0, row, parts)


class _Forwards:
    """Forwards behind a drafter, and behind another forward."""

    def __init__(self, run: Callable[[], FloatArray]) -> None:
        self._run = run
        self._behind_drafter: list[float] = []
        self._behind_forward: list[float] = []

    def run(self, end: float) -> FloatArray:
        """Run one behind the drafter and, if there is time until ``end``, two more; return their logits."""
        logits = self._timed(self._behind_drafter)
        if time.perf_counter() + 2 * self._behind_drafter[-1] < end:  # beside slow ones it does not matter
            self._run()
            logits = self._timed(self._behind_forward)
        return logits

    def _timed(self, times: list[float]) -> FloatArray:
        begin = time.perf_counter()
        logits = self._run()
        times.append(time.perf_counter() - begin)
        return logits

    def slowed(self) -> float:
        """Return by how many seconds the drafter slows down the forward behind it."""
        if not self._behind_forward:
            return 0.0
        return max(0.0, typical(self._behind_drafter) - typical(self._behind_forward))


def measure_draft_model(
    drafter: DraftModelDrafter, vocab_size: int, between: Callable[[], FloatArray], seconds: float
) -> DraftTimes:
    """Measure chains of 1 and of 5 drafted tokens behind full acceptance: catch-up and a draft step each."""
    text, _ = _text(vocab_size)
    session = drafter.start(DraftContext("profile", text[:_PAIRS], _Argmax()))
    spent: dict[int, list[float]] = {1: [], 5: []}

    def propose(length: int) -> None:
        begin = time.perf_counter()
        draft = session.propose(length)
        tokens = draft.tree.tokens
        session.observe(StepObservation((*tokens, tokens[-1] if tokens else 0), len(tokens), draft))
        spent[length].append(time.perf_counter() - begin)

    propose(1)  # computes the prompt
    spent[1].clear()
    jobs = {length: functools.partial(propose, length) for length in spent}
    interleaved(jobs, _MOST_TURNS, seconds, before=between)
    session.stop()
    one, five = (typical(values) for values in spent.values())
    per_level = max(0.0, (five - one) / 4)
    return DraftTimes(max(0.0, one - per_level), per_level, 0.0, {"chain of 1": one, "chain of 5": five})


def measure_head(
    head: Eagle3Head, options: Eagle3Options, between: Callable[[], FloatArray], seconds: float
) -> DraftTimes | None:
    """Measure catching up, chains and whole trees of a head in free blocks of its cache.

    What a draft costs besides its levels is measured on a session, since Python has a good part in it.
    ``None`` when requests hold so many of these that it does not fit now.
    """
    levels = min(_LEVELS, options.max_depth, max(1, head.executor.spec.max_context - _PAIRS))
    width = min(options.width, BUDGET)
    # So many nodes that no level is left out because its nodes could not be among the best.
    shapes = {"tree": DraftShape(width * width * levels, levels, width), "chain": DraftShape(levels, levels)}
    table = BlockTable(head.pool, head.executor.block_size)
    needed = 2 * _PAIRS + _CATCH_UP * (_MOST_TURNS + 3) + shapes["tree"].num_slots
    if table.blocks_missing(needed) > head.pool.num_free:
        return None
    table.reserve(_PAIRS + _CATCH_UP + shapes["tree"].num_slots)
    session = _HeadSession(head, options)
    try:
        jobs = _head_jobs(head.executor, table.blocks, shapes, width)
        times = interleaved({**jobs, "session": session}, _MOST_TURNS, seconds, before=between)
    finally:
        session.stop()
        table.truncate(0)
    found = {name: typical(values) for name, values in times.items()}
    # A level of a tree has `width` rows at most, and in use nearly always one: the others are so unlikely
    # that they are not drafted on from. So the chain says what a level costs.
    per_level = max(0.0, (found["chain"] - found["one level"]) / (levels - 1)) if levels > 1 else 0.0
    fixed = max(0.0, found["session"] - per_level)
    parts = {
        f"catch-up with {_CATCH_UP} tokens": found["catch-up"],
        "catch-up and one level": found["one level"],
        "the same by a session, with what it learns": found["session"],
        f"chain of {levels} levels": found["chain"],
        f"tree of {levels} levels, width {width}": found["tree"],
    }
    return DraftTimes(fixed, per_level, 0.0, parts)


def _head_jobs(
    executor: Eagle3Executor, blocks: Sequence[int], shapes: Mapping[str, DraftShape], width: int
) -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(0)
    num_columns = executor.spec.num_states * executor.spec.target_hidden_size
    states = rng.standard_normal((_CATCH_UP, num_columns), dtype=np.float32)
    prompt = rng.standard_normal((_PAIRS, num_columns), dtype=np.float32)
    tokens = rng.integers(0, executor.spec.vocab_size, _PAIRS + _CATCH_UP, dtype=np.int32)
    executor.catch_up(ForwardBatch.chain(tokens[:_PAIRS], 0, blocks, 0), prompt)
    pairs = ForwardBatch.chain(tokens[_PAIRS:], _PAIRS, blocks, 1)
    silent = ForwardBatch.chain(tokens[_PAIRS:], _PAIRS, blocks, 0)
    one = DraftShape(BUDGET, 1, width)
    return {
        "catch-up": lambda: executor.catch_up(silent, states),
        "one level": lambda: executor.draft(pairs, states, one),
        "chain": lambda: executor.draft(pairs, states, shapes["chain"]),
        "tree": lambda: executor.draft(pairs, states, shapes["tree"]),
    }


class _HeadSession:
    """One request that drafts a single level at any price. Each call: a draft, and a step that refuses it."""

    def __init__(self, head: Eagle3Head, options: Eagle3Options) -> None:
        spec, rng = head.executor.spec, np.random.default_rng(0)
        free = VerifyCost((1.0, 1.0), min_gain=0.0)
        eager = replace(
            options, max_depth=1, sampling="tree", verify_cost=free, step_cost=0.0, catch_up_cost=0.0
        )
        length = max(2, min(_PAIRS, spec.max_context - _CATCH_UP * (_MOST_TURNS + 2)))
        self._tokens: list[int] = rng.integers(0, spec.vocab_size, length).tolist()
        self._states = rng.standard_normal(
            (length, spec.num_states * spec.target_hidden_size), dtype=np.float32
        )
        self._known = 0
        context = DraftContext("profile", tuple(self._tokens), _Argmax())
        self._session = Eagle3Drafter(head, options=eager).start(context)
        self._observe(EMPTY_DRAFT, length, self._tokens[:1])
        self()  # computes the prompt

    def __call__(self) -> None:
        self._observe(self._session.propose(BUDGET), _CATCH_UP, self._tokens[:_CATCH_UP])

    def _observe(self, draft: Draft, num_states: int, committed: Sequence[int]) -> None:
        states = HiddenStates(self._known, self._states[:num_states])
        self._known += num_states
        self._session.observe(StepObservation(tuple(committed), 0, draft, states=states))

    def stop(self) -> None:
        self._session.stop()


class _Argmax:
    """Greedy drawing."""

    def draw(
        self, logits: FloatArray, path: tuple[int, ...], ids: IntArray | None = None
    ) -> tuple[int, TokenLaw | None]:
        best = kernels.argmax(logits)
        return (best if ids is None else int(ids[best])), None


def _text(vocab_size: int) -> tuple[tuple[int, ...], dict[int, int]]:
    """Return a text long enough for all turns, and each token's likeliest follower in it."""
    rng = np.random.default_rng(0)
    words: list[int] = rng.permutation(vocab_size)[:_WORDS].tolist()
    followers = {word: rng.choice(words, len(_FOLLOWERS)).tolist() for word in words}
    text = [words[0]]
    for rank in rng.choice(
        len(_FOLLOWERS), _PAIRS + _MOST_TURNS * (BUDGET + 1) + BUDGET, p=_FOLLOWERS
    ).tolist():
        text.append(followers[text[-1]][rank])
    return tuple(text), {word: ranked[0] for word, ranked in followers.items()}


def _committed(draft: Draft, text: Sequence[int]) -> tuple[int, ...]:
    """Return the drafted path that goes on with ``text``, and the text's next token."""
    count, node = 0, ROOT
    while True:
        hits = [child for child in draft.tree.children(node) if draft.tree.tokens[child] == text[count]]
        count += 1
        if not hits:
            return tuple(text[:count])
        node = hits[0]


def _observation(
    draft: Draft,
    committed: tuple[int, ...],
    root: int,
    follower: Mapping[int, int],
    logits: FloatArray,
    wanted: int,
) -> StepObservation:
    """Return what the engine would tell of a step, each token's likeliest successor being the text's."""
    verified = np.array([root, *draft.tree.tokens], dtype=np.int32)
    top = np.repeat(kernels.top_ids(logits, wanted), len(verified), axis=0) if wanted else None
    if top is not None:
        top[:, 0] = [follower.get(token, 0) for token in verified.tolist()]
    return StepObservation(committed, len(committed) - 1, draft, verified, top)
