"""A head's session: pairs in its cache, shapes it asks for, chains with laws, blocks that come back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.drafters.base import DraftContext
from paceline.drafters.eagle3 import Eagle3Drafter, Eagle3Options, Eagle3Session
from paceline.drafters.head_pace import HeadCost, HeadPace
from paceline.drafters.head_sequence import CHUNK_ROWS
from paceline.drafters.verify_cost import VerifyCost
from paceline.errors import ConfigError
from paceline.records import (
    EMPTY_DRAFT,
    BatchLoad,
    Draft,
    FloatArray,
    HiddenStates,
    IntArray,
    StepObservation,
    TokenLaw,
)
from paceline.tree import ROOT
from support.draft_play import ArgmaxSampler
from support.fake_executor import FakeExecutor
from support.fake_head import FakeHead, all_ids, head_drafter, true_states

FLAT = VerifyCost((1.0, 1.01, 1.02, 1.03))
TREE = Eagle3Options(verify_cost=FLAT, step_cost=0.01)
TARGET = FakeExecutor()


def drafter_of(options: Eagle3Options = TREE, **head: int) -> tuple[Eagle3Drafter, FakeHead]:
    fake = FakeHead(TARGET, all_ids(TARGET), **head)  # type: ignore[arg-type]
    return head_drafter(fake, options), fake


def opened(drafter: Eagle3Drafter, prompt: list[int], first: int | None = 1) -> Eagle3Session:
    """Return a session that has seen its prompt's states and, unless ``None``, the first token."""
    session = drafter.start(DraftContext("r", tuple(prompt), ArgmaxSampler()))
    if first is not None:
        states = HiddenStates(0, true_states(tuple(prompt), 0, len(prompt)))
        session.observe(StepObservation((first,), 0, states=states))
    return session


def told(
    known: list[int], committed: list[int], accepted: int = 0, draft: Draft = EMPTY_DRAFT
) -> StepObservation:
    """Return what the engine tells after ``committed`` follow ``known``: states of all but the last token."""
    everything, start = tuple(known + committed), len(known) - 1
    states = HiddenStates(start, true_states(everything, start, len(everything) - 1))
    return StepObservation(tuple(committed), accepted, draft, states=states)


def test_nothing_is_drafted_before_the_states_of_the_prompt() -> None:
    drafter, head = drafter_of()
    session = opened(drafter, [3, 1, 4], first=None)
    assert len(session.propose(5)) == 0
    assert not head.rows_per_pass
    assert drafter.num_free_blocks == head.num_blocks


def test_catch_up_is_one_pass_with_the_draft() -> None:
    """The prompt's pairs come with the first draft, afterwards one more row per accepted token."""
    drafter, head = drafter_of()
    session = opened(drafter, [3, 1, 4], first=5)
    assert len(session.propose(5)) > 0
    assert head.rows_per_pass == [3]
    session.observe(told([3, 1, 4, 5], [7, 8, 9], accepted=2))
    session.propose(5)
    assert head.rows_per_pass == [3, 3]
    session.observe(told([3, 1, 4, 5, 7, 8, 9], [2]))
    session.propose(5)
    assert head.rows_per_pass == [3, 3, 1]
    assert len(session.propose(5)) == 0  # nothing was committed since: there is no row to start from
    assert session.num_cached == 7


def test_a_long_prompt_is_read_in_chunks_as_it_comes() -> None:
    drafter, head = drafter_of(num_blocks=200)
    prompt = [i % 11 + 1 for i in range(300)]
    session = opened(drafter, prompt, first=None)
    for start in range(0, 300, 150):
        states = HiddenStates(start, true_states(tuple(prompt), start, start + 150))
        committed = (5,) if start else ()
        session.observe(StepObservation(committed, 0, states=states))
    assert head.rows_per_pass == [CHUNK_ROWS]
    assert len(session.propose(4)) > 0
    assert head.rows_per_pass == [CHUNK_ROWS, 300 - CHUNK_ROWS]


def test_states_that_come_again_are_skipped() -> None:
    drafter, head = drafter_of()
    session = opened(drafter, [3, 1, 4], first=5)
    session.propose(3)
    again = HiddenStates(0, true_states((3, 1, 4, 5), 0, 4))
    session.observe(StepObservation((6,), 0, states=again))
    session.propose(3)
    assert head.rows_per_pass == [3, 1]


def test_a_head_begins_with_the_first_state_that_comes() -> None:
    """The target had the first four tokens in its prefix cache: nobody computed their states."""
    prompt = (3, 1, 4, 1, 5, 9)
    drafter, head = drafter_of()
    session = drafter.start(DraftContext("r", prompt, ArgmaxSampler()))
    session.observe(StepObservation((2,), 0, states=HiddenStates(4, true_states(prompt, 4, 6))))
    assert next_tokens(session) != []
    assert head.rows_per_pass[0] == 2
    assert session.num_cached == 2
    pairs = [(row.tobytes(), token) for row, token in zip(true_states(prompt, 4, 6), (9, 2), strict=True)]
    assert head.seen(np.array(session._sequence.table.blocks), 2) == pairs
    session.observe(told([*prompt, 2], [7, 8], accepted=1))
    assert next_tokens(session) != []
    assert session.num_cached == 4
    session.stop()
    assert drafter.num_free_blocks == head.num_blocks


def test_a_head_knows_the_pairs_of_an_earlier_request() -> None:
    """It goes on behind a hit as if it had seen the whole prompt; the pair across the cut decides how far."""
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5]
    drafter, head = drafter_of()
    first = opened(drafter, prompt, first=3)
    wanted = next_tokens(first)
    first.stop()
    again = drafter.start(DraftContext("r", tuple(prompt), ArgmaxSampler()))
    assert again.states_wanted_from(8) == 8
    states = HiddenStates(8, true_states(tuple(prompt), 8, 9))
    again.observe(StepObservation((3,), 0, states=states))
    rows = len(head.rows_per_pass)
    assert next_tokens(again) == wanted
    assert head.rows_per_pass[rows] == 1
    assert (again._sequence.first, again.num_cached) == (0, 9)
    other = drafter.start(DraftContext("r", (*prompt[:8], 7), ArgmaxSampler()))
    assert other.states_wanted_from(8) == 4  # the eighth pair holds the ninth token, which is another one
    drafter.head.pool.check([again._sequence.table.blocks])
    again.stop()
    assert drafter.num_free_blocks == head.num_blocks


def test_behind_a_gap_a_head_begins_again() -> None:
    """A preempted request may come back with more tokens in the prefix cache than it had computed itself."""
    prompt = (3, 1, 4, 1, 5, 9)
    drafter, _ = drafter_of()
    session = drafter.start(DraftContext("r", prompt, ArgmaxSampler()))
    session.observe(StepObservation((), 0, states=HiddenStates(0, true_states(prompt, 0, 2))))
    session.observe(StepObservation((2,), 0, states=HiddenStates(4, true_states(prompt, 4, 6))))
    assert next_tokens(session) != []
    assert session.num_cached == 2
    assert session._sequence.first == 4
    drafter.head.pool.check([session._sequence.table.blocks])


@settings(max_examples=30, deadline=None)
@given(
    prompt=st.lists(st.integers(0, 11), min_size=1, max_size=9),
    steps=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 11)), max_size=8),
)
def test_the_cache_holds_true_pairs_and_a_draft_is_a_fresh_one(
    prompt: list[int], steps: list[tuple[int, int, int]]
) -> None:
    """Whatever was drafted, accepted and skipped before, the next tree is that of a session just opened."""
    drafter, head = drafter_of()
    session = opened(drafter, prompt)
    known = [*prompt, 1]
    for budget, kept, recovered in steps:
        draft = session.propose(budget) if budget else EMPTY_DRAFT
        path = draft.tree.path(min(kept, len(draft)) - 1) if len(draft) and kept else ()
        committed = [*(draft.tree.tokens[node] for node in path), recovered]
        session.observe(told(known, committed, len(path), draft))
        known += committed
        blocks = np.array(session._sequence.table.blocks)
        truth = true_states(tuple(known), 0, session.num_cached)
        pairs = [(row.tobytes(), token) for row, token in zip(truth, known[1:], strict=False)]
        assert head.seen(blocks, session.num_cached) == pairs
        drafter.head.pool.check([blocks.tolist()])
    fresh, _ = drafter_of()
    other = opened(fresh, known[:-1], first=known[-1])
    assert next_tokens(session) == next_tokens(other) != []
    session.stop()
    assert drafter.num_free_blocks == head.num_blocks


def next_tokens(session: Eagle3Session) -> list[tuple[float, int]]:
    """The first level of a draft and how sure the head is of it; what a request learnt changes neither."""
    tree = session.grow(64)
    assert tree is not None
    top = [node for node, parent in enumerate(tree.parents) if parent == ROOT]
    return sorted((tree.raws[node], tree.tokens[node]) for node in top)


def test_a_full_cache_silences_a_request_until_another_ends() -> None:
    drafter, _ = drafter_of(num_blocks=6)
    first, second = opened(drafter, [1] * 9), opened(drafter, [2] * 6)
    assert len(first.propose(2)) > 0
    second._sequence._pool.take(drafter.num_free_blocks)
    assert len(second.propose(2)) == 0
    first.stop()
    assert len(second.propose(2)) > 0


def test_drafts_end_with_the_context_of_the_head() -> None:
    drafter, head = drafter_of(max_context=10)
    session = opened(drafter, [1] * 9, first=2)
    assert len(session.propose(7)) > 0
    assert head.shapes[-1].max_depth == 2  # pairs 0 … 8 are there; a row at 9 is the last one that fits
    known = [*[1] * 9, 2]
    session.observe(told(known, [3]))
    session.propose(7)
    assert head.shapes[-1].max_depth == 1
    session.observe(told([*known, 3], [4]))
    assert len(session.propose(7)) == 0
    assert drafter.num_free_blocks == head.num_blocks
    session.observe(told([*known, 3, 4], [5]))  # and it stays quiet, without an error
    assert len(session.propose(7)) == 0


def test_a_chain_is_a_tree_of_width_one() -> None:
    drafter, head = drafter_of(Eagle3Options(verify_cost=FLAT, step_cost=0.01, width=1))
    session = opened(drafter, [3, 1, 4])
    assert session.propose(5).tree.is_chain()
    assert head.shapes[-1].width == 1
    assert not drafter.capabilities.can_branch


class SpySampler:
    """Takes the argmax and says it was drawn from two tokens."""

    def __init__(self) -> None:
        self.paths: list[tuple[int, ...]] = []
        self.rows: list[FloatArray] = []
        self.ids: list[IntArray] = []

    def draw(
        self, logits: FloatArray, path: tuple[int, ...], ids: IntArray | None = None
    ) -> tuple[int, TokenLaw | None]:
        self.paths.append(path)
        assert ids is not None
        self.rows.append(logits.copy())
        self.ids.append(ids)
        best = np.sort(ids[np.argsort(-logits)[:2]]).astype(np.int32)
        return int(ids[np.argmax(logits)]), TokenLaw(best, np.array([0.5, 0.5]))


def test_drawn_chains_carry_the_laws_and_know_only_draft_ids() -> None:
    ids = np.array([1, 3, 4, 7, 11], np.int32)
    options = Eagle3Options(verify_cost=FLAT, step_cost=0.01, sampling="chain")
    head = FakeHead(TARGET, ids)
    drafter, sampler = head_drafter(head, options), SpySampler()
    session = drafter.start(DraftContext("r", (3, 1, 4), sampler, rule="block"))
    session.observe(StepObservation((1,), 0, states=HiddenStates(0, true_states((3, 1, 4), 0, 3))))
    draft = session.propose(3)
    assert draft.laws is not None
    assert len(draft) == 3
    assert sampler.paths == [draft.tree.tokens[:depth] for depth in range(3)]
    for row, known in zip(sampler.rows, sampler.ids, strict=True):
        assert row.shape == ids.shape
        assert known.tolist() == ids.tolist()
    assert head.rows_per_pass == [3, 1, 1]
    assert drafter.capabilities.gives_probabilities
    greedy = drafter.start(DraftContext("g", (3, 1, 4), sampler))
    greedy.observe(StepObservation((1,), 0, states=HiddenStates(0, true_states((3, 1, 4), 0, 3))))
    assert greedy.propose(3).laws is None


def test_blocks_come_back_when_the_sampler_raises() -> None:
    class Broken(SpySampler):
        def draw(
            self, logits: FloatArray, path: tuple[int, ...], ids: IntArray | None = None
        ) -> tuple[int, TokenLaw | None]:
            raise RuntimeError("no law")

    drafter, head = drafter_of(Eagle3Options(verify_cost=FLAT, sampling="chain"))
    session = drafter.start(DraftContext("r", (1, 2), Broken(), rule="block"))
    session.observe(StepObservation((1,), 0, states=HiddenStates(0, true_states((1, 2), 0, 2))))
    with pytest.raises(RuntimeError, match="no law"):
        session.propose(3)
    session.stop()
    assert drafter.num_free_blocks == head.num_blocks


def test_a_head_that_is_never_right_falls_silent_and_is_probed() -> None:
    """The head costs a third of a forward; after some steps it is asked ever more rarely."""
    drafter, head = drafter_of(Eagle3Options(step_cost=0.1, catch_up_cost=0.0))
    session = opened(drafter, [3, 1, 4])
    known, asked = [3, 1, 4, 1], []
    for _ in range(200):
        before = len(head.rows_per_pass)
        draft = session.propose(7)
        asked.append(len(head.rows_per_pass) > before)
        token = next(t for t in range(12) if t not in draft.tree.tokens and t not in session._grown.tokens)
        session.observe(told(known, [token], 0, draft))
        known.append(token)
    assert all(asked[:3])
    assert any(asked[50:])
    assert sum(asked[50:]) <= 4


def test_dearer_steps_make_shallower_drafts() -> None:
    cheap, dear = HeadPace(FLAT, HeadCost(0.0, 0.01)), HeadPace(FLAT, HeadCost(0.0, 0.3))
    assert cheap.least_parent(7, 1.0) < dear.least_parent(7, 1.0) < 0.0
    assert cheap.least_parent(7, 0.5) == pytest.approx(cheap.least_parent(7, 1.0) + math.log(2))
    assert cheap.chain_depth(8) > dear.chain_depth(8) >= 1
    assert HeadPace(VerifyCost((1.0, 2.0)), HeadCost(0.0, 0.5)).chain_depth(8) == 0
    assert HeadPace(FLAT, HeadCost(0.5, 0.01)).chain_depth(8) >= cheap.chain_depth(8)


def test_a_full_batch_makes_shallower_drafts_and_fewer_askings() -> None:
    """In a batch of eight a plain token costs little, so the same head must be surer to pay."""
    cost, full = VerifyCost(), BatchLoad(8, 8)
    drafting = HeadCost(0.1, 0.02)
    alone, among = HeadPace(cost, drafting), HeadPace(cost, drafting)
    assert alone.pays(1.0)
    assert not among.pays(1.0, full)
    assert among.least_parent(7, 1.0, full) > alone.least_parent(7, 1.0)
    assert among.chain_depth(7, full) < alone.chain_depth(7)
    assert alone.pays(1.0)
    assert not alone.pays(1.0, full)
    assert alone.pays(1.0)  # the batch has shrunk again


def test_the_rate_follows_what_was_accepted() -> None:
    pace = HeadPace(FLAT, HeadCost(0.0, 0.05))
    first = pace.rate
    for _ in range(50):
        pace.learn(num_levels=4, num_accepted=4, num_committed=5)
    assert pace.rate > 0.9 > first
    pace.learn(num_levels=4, num_accepted=2, num_committed=2)  # behind a stop nothing is known
    assert pace.rate > 0.9
    for _ in range(100):
        pace.learn(num_levels=4, num_accepted=0, num_committed=1)
    assert pace.rate < 0.2


@pytest.mark.parametrize(
    ("values", "name"),
    [({"step_cost": -1.0}, "step_cost"), ({"max_depth": 0}, "max_depth"), ({"width": 0}, "width"),
     ({"sampling": "trees"}, "sampling.*did you mean 'tree'"), ({"verify_cost": 3}, "verify_cost")],
)  # fmt: skip
def test_options_out_of_range_are_named(values: dict[str, object], name: str) -> None:
    with pytest.raises(ConfigError, match=f"eagle3: {name}"):
        Eagle3Options(**values)  # type: ignore[arg-type]
