"""Token Recycling: rows hold the target's latest successors, trees grow along them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.drafters.recycle import RecycleDrafter, RecycleOptions, SuccessorTable
from paceline.errors import ConfigError
from paceline.records import Draft, StepObservation
from paceline.tree import ROOT
from support.draft_play import context, play

TOKENS = st.lists(st.integers(0, 63), min_size=1, max_size=50)


def teach(drafter: RecycleDrafter, rows: dict[int, list[int]]) -> None:
    """Let the drafter see the successors of some tokens."""
    tokens = np.array(list(rows), dtype=np.int32)
    top = np.array([(row + [60] * 8)[:8] for row in rows.values()], dtype=np.int32)
    session = drafter.start(context([0]))
    session.observe(StepObservation((0,), 0, Draft(), tokens, top))
    session.stop()


def test_a_tree_grows_along_the_rows() -> None:
    drafter = RecycleDrafter(64, RecycleOptions(min_probability=0.0))
    for _ in range(4):  # a row that stays the same is steady
        teach(drafter, {1: [2, 3], 2: [4, 5], 4: [6]})
    tree = drafter.start(context([1])).propose(4).tree
    assert tree.tokens[:3] == (2, 4, 6)
    assert tree.parents[:3] == (ROOT, 0, 1)


def test_the_latest_row_counts_and_requests_share_it() -> None:
    drafter = RecycleDrafter(64)
    teach(drafter, {1: [2]})
    teach(drafter, {1: [7]})
    assert drafter.start(context([1])).propose(1) == Draft.chain([7])
    assert drafter.table.successors[1].tolist() == [7] + [60] * 7


def test_an_unknown_token_gives_no_draft() -> None:
    session = RecycleDrafter(64).start(context([1]))
    assert len(session.propose(8)) == 0


def test_the_root_is_the_last_committed_token() -> None:
    drafter = RecycleDrafter(64)
    teach(drafter, {1: [2], 9: [10]})
    session = drafter.start(context([1]))
    session.observe(StepObservation((5, 9), 1))
    assert session.propose(1) == Draft.chain([10])


def test_steadiness_counts_and_falls_back() -> None:
    table = SuccessorTable(8, 2)
    token, same, other = np.array([3], np.int32), np.array([[1, 2]], np.int32), np.array([[2, 1]], np.int32)
    steady = []
    for top in (same, same, same, same, same, other):
        table.store(token, top)
        steady.append(table.row(3)[1])
    assert steady == [0, 1, 2, 3, 3, 0]


def test_memory_is_what_it_says() -> None:
    assert RecycleDrafter(49_152).table.nbytes == 49_152 * (4 * 8 + 1)
    assert RecycleDrafter(100, RecycleOptions(num_successors=2)).capabilities.num_top_tokens == 2


@given(prompt=TOKENS, reply=TOKENS, budget=st.integers(0, 9))
def test_drafts_fit_the_budget_and_are_trees(prompt: list[int], reply: list[int], budget: int) -> None:
    drafter = RecycleDrafter(64, RecycleOptions(min_probability=0.0))
    play(drafter.start(context(prompt)), prompt, reply, budget)


def test_a_repeating_reply_is_recycled() -> None:
    drafter = RecycleDrafter(64)
    reply = [5, 9, 13, 17, 21, 25] * 12
    steps = play(drafter.start(context([5])), [5], reply, 7)
    assert len(steps) < len(reply) / 2


def test_what_is_refused_teaches_caution() -> None:
    """Rows that never come true: drafts must get smaller."""
    drafter = RecycleDrafter(64)
    for _ in range(4):
        teach(drafter, {1: [40, 41], 2: [42, 43], 40: [44], 42: [45]})
    session = drafter.start(context([1]))
    sizes = []
    for i in range(60):
        draft = session.propose(7)
        sizes.append(len(draft))
        session.observe(StepObservation((1 + i % 2,), 0, draft))
    assert sum(sizes[-10:]) < 0.7 * sum(sizes[:10])


@pytest.mark.parametrize("values", [{"num_successors": 9}, {"num_successors": 0}, {"min_probability": 1.5}])
def test_options_out_of_range_are_named(values: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"recycle: {next(iter(values))}"):
        RecycleDrafter(64, RecycleOptions(**values))  # type: ignore[arg-type]
