"""The suffix drafter: likeliest continuations first, shared replies, bounded memory."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.drafters.past_replies import PastReplies
from paceline.drafters.suffix import SuffixDrafter, SuffixOptions, SuffixSession
from paceline.drafters.suffix_index import NOWHERE
from paceline.errors import ConfigError
from paceline.records import Draft, StepObservation
from paceline.tree import ROOT
from support.draft_play import context, observation, play, tokens_per_step

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=60)
ALONE = SuffixOptions(shared_nodes=0)


@given(prompt=TOKENS, reply=TOKENS, budget=st.integers(0, 9))
def test_state_after_observing_equals_state_built_from_scratch(
    prompt: list[int], reply: list[int], budget: int
) -> None:
    session = SuffixDrafter(ALONE).start(context(prompt))
    play(session, prompt, reply, budget)
    rebuilt = SuffixDrafter(ALONE).start(context(prompt + reply))
    _assert_same_index(session, rebuilt)


@given(prompt=TOKENS, budget=st.integers(0, 12))
def test_candidates_fall_in_probability_and_fit_the_budget(prompt: list[int], budget: int) -> None:
    tree = SuffixDrafter(ALONE).start(context(prompt)).grow(budget)
    assert len(tree) <= budget
    assert tree.paths == sorted(tree.paths, reverse=True)
    for parent, path in zip(tree.parents, tree.paths, strict=True):
        assert 0 < path <= (1.0 if parent == ROOT else tree.paths[parent])
    tree.draft(budget)  # a valid TokenTree, or it raises


def test_the_commoner_continuation_comes_first_and_both_are_drafted() -> None:
    prompt = [1, 2, 3, 50, 1, 2, 4, 51, 1, 2, 3, 52, 1, 2, 3, 53, 1, 2]
    session = SuffixDrafter(SuffixOptions(shared_nodes=0, min_probability=0.05)).start(context(prompt))
    tree = session.propose(8).tree
    top = [tree.tokens[node] for node in tree.children(ROOT)]
    assert top == [3, 4]


def test_an_estimate_counts_the_followers_only() -> None:
    """The run that ends the text has no follower yet; counting it made every single match look twice seen."""
    tree = SuffixDrafter(ALONE).start(context([1, 2, 3, 0, 1, 2])).grow(1)
    assert tree.tokens == [3]
    assert tree.raws == pytest.approx([1 / (1 + 0.85)])  # seen once, escape weight of a match of two


def test_doubt_shortens_the_draft() -> None:
    sure = list(range(10, 30))
    confident = SuffixDrafter(ALONE).start(context([*sure, 99, *sure[:12]]))
    doubtful = SuffixDrafter(ALONE).start(context([5, 1, 2, 7, 8, 9, 10, 11, 12, 13, 0, 6, 1, 2]))
    assert len(confident.propose(8)) == 8
    assert 1 <= len(doubtful.propose(8)) < 8


def test_a_repetition_goes_on_past_the_counted_depth() -> None:
    session = SuffixDrafter(SuffixOptions(max_depth=14, max_match=12)).start(context([1] * 40))
    draft = session.propose(12)
    assert draft.tree.tokens == (1,) * 12
    assert draft.tree.is_chain()


def test_what_one_request_said_helps_the_next() -> None:
    drafter = SuffixDrafter()
    reply = [40 + i for i in range(20)]
    first = tokens_per_step(drafter, [1, 2, 3], reply, 8)
    second = tokens_per_step(drafter, [9, 2, 3], reply, 8)
    assert first == 1.0
    assert second > 3.0


def test_a_reply_that_ends_meanwhile_helps_a_running_request() -> None:
    """The length of the last shared match bounded the next search, also when other replies had come since."""
    drafter = SuffixDrafter()
    drafter.start(context([1, 2, 3])).stop()
    text = [40 + i for i in range(20)]
    running = drafter.start(context(text[:10]))
    running.observe(observation(Draft(), 0, (text[10],), text[9]))
    assert len(running.propose(4)) == 0
    play(other := drafter.start(context([7])), [7], [50, 50, *text], 4)
    other.stop()
    running.observe(observation(Draft(), 0, (text[11],), text[10]))
    assert running.propose(4).tree.tokens == tuple(text[12:16])


def test_nothing_is_shared_when_told_so() -> None:
    drafter = SuffixDrafter(ALONE)
    reply = [40 + i for i in range(20)]
    assert tokens_per_step(drafter, [1, 2, 3], reply, 8) == 1.0
    assert tokens_per_step(drafter, [1, 2, 3], reply, 8) == 1.0


def test_a_prediction_is_text_to_draft_from() -> None:
    reply = [40 + i for i in range(20)]
    session = SuffixDrafter(ALONE).start(context([1, 2, 3], prediction=reply))
    assert len(play(session, [1, 2, 3], reply, 8)) < 8


def test_shared_memory_is_bounded_and_the_newest_replies_survive() -> None:
    rng = random.Random(1)
    past = PastReplies(max_nodes=2000, max_depth=16)
    replies = [[rng.randrange(5000) for _ in range(100)] for _ in range(200)]
    for reply in replies:
        past.add(reply)
        past.take_in()
        # Two generations of half the bound, each overshooting by at most one reply's nodes.
        assert sum(generation.num_nodes for generation in past.generations) <= 2000 + 2 * 400
    assert any(generation.find(replies[-1][:8]) != -(1 << 62) for generation in past.generations)
    assert all(generation.find(replies[0][:8]) == -(1 << 62) for generation in past.generations)


def test_replies_wait_until_a_draft_is_wanted() -> None:
    """Indexing each reply as it ended took 4 % of a batch of 32, in which nobody drafts.

    What waits is bounded, the newest stays, and a step takes in no more than it has time for.
    """
    past = PastReplies(max_nodes=4000, max_depth=16)
    for first in range(0, 200_000, 100):
        past.add(range(first, first + 100))
    assert past.generations == ()
    for count in (3, 6, 9, 10, 10):
        past.take_in()
        assert past.num_added == count
    assert past.generations[0].find((199_998, 199_999)) != NOWHERE


def test_a_session_that_was_not_asked_knows_what_one_knows_that_was() -> None:
    prompt, reply = [1, 2, 3, 4, 5], [7, 8, 1, 2, 3, 4, 9, 7, 8, 1, 2]
    busy, silent = (SuffixDrafter(ALONE).start(context(prompt, prediction=[3, 4, 5, 6])) for _ in range(2))
    for token in reply:
        busy.grow(4)
        for session in (busy, silent):
            session.observe(StepObservation((token,), 0))
    assert silent._index.text == []
    _assert_same_index(busy, silent)


def _assert_same_index(one: SuffixSession, other: SuffixSession) -> None:
    for session in (one, other):
        session.grow(1)
    for name in ("text", "active", "counts", "tails", "children"):
        assert getattr(one._index, name) == getattr(other._index, name)


def test_acceptance_is_learned() -> None:
    """After 1 2 comes something new every time: the estimate for short matches must fall."""
    prompt = [1, 2, 3, 9]
    reply = [token for i in range(40) for token in (1, 2, 100 + i)]
    session = SuffixDrafter(SuffixOptions(min_match=2, shared_nodes=0)).start(context(prompt))
    steps = play(session, prompt, reply, 4)
    early = sum(len(step.draft) for step in steps[:30])
    late = sum(len(step.draft) for step in steps[-30:])
    assert late < early


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"min_match": 0}, "min_match=0"),
        ({"max_match": 0}, "max_match=0"),
        ({"min_probability": float("nan")}, "min_probability=nan"),
        ({"max_depth": 12}, "raise max_depth"),
        ({"shared_nodes": -1}, "shared_nodes=-1"),
    ],
)
def test_options_out_of_range_are_named(values: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SuffixOptions(**values)  # type: ignore[arg-type]


def test_the_same_reply_again_and_again_does_not_fill_the_memory() -> None:
    """It adds no node after its first few times, but it added its text, for ever: the bound counted nodes."""
    past = PastReplies(max_nodes=400, max_depth=8)
    for _ in range(2000):
        past.add(range(20))
        past.take_in()
    assert sum(len(index.text) for index in past.generations) <= 400 * 32 + 2 * 21
    assert past.generations[0].find((5, 6, 7)) != NOWHERE or past.generations[1].find((5, 6, 7)) != NOWHERE
