"""The n-gram drafter: longest match first, newest first, the same state however it was built."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.drafters.ngram import NgramDrafter, NgramIndex, NgramOptions
from paceline.errors import ConfigError
from paceline.records import Draft
from support.draft_play import context, observation, play

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=60)


def longest_match_by_search(tokens: list[int], options: NgramOptions) -> tuple[int, int]:
    """The definition, searched for naively: longest n, then the newest earlier occurrence with a follower."""
    for n in range(min(options.max_n, len(tokens)), options.min_n - 1, -1):
        tail = tokens[-n:]
        for start in range(len(tokens) - n - 1, -1, -1):
            if tokens[start : start + n] == tail:
                return n, start + n
    return 0, -1


@given(tokens=TOKENS, low=st.integers(1, 4), width=st.integers(0, 4))
def test_match_is_the_longest_and_the_newest(tokens: list[int], low: int, width: int) -> None:
    options = NgramOptions(low, low + width)
    index = NgramIndex(options)
    index.extend(tokens)
    assert index.longest_match() == longest_match_by_search(tokens, options)


@given(prompt=TOKENS, reply=TOKENS, budget=st.integers(0, 9))
def test_state_after_observing_equals_state_built_from_scratch(
    prompt: list[int], reply: list[int], budget: int
) -> None:
    session = NgramDrafter().start(context(prompt))
    play(session, prompt, reply, budget)
    rebuilt = NgramDrafter().start(context(prompt + reply))
    assert session.propose(8) == rebuilt.propose(8)


def test_it_proposes_what_followed_last_time() -> None:
    session = NgramDrafter(NgramOptions(2, 3)).start(context([1, 2, 3, 4, 5, 9, 1, 2, 3]))
    assert session.propose(2) == Draft.chain([4, 5])


def test_a_longer_match_beats_a_newer_one() -> None:
    # 7 8 was followed by 5 last, but 6 7 8 by 1.
    session = NgramDrafter(NgramOptions(2, 3)).start(context([6, 7, 8, 1, 0, 7, 8, 5, 2, 6, 7, 8]))
    assert session.propose(1) == Draft.chain([1])


def test_a_repetition_goes_on_past_the_end_of_the_text() -> None:
    session = NgramDrafter(NgramOptions(2, 3)).start(context([1, 2, 1, 2, 1]))
    assert session.propose(5) == Draft.chain([2, 1, 2, 1, 2])


def test_no_match_no_draft() -> None:
    session = NgramDrafter().start(context([1, 2, 3, 4]))
    assert len(session.propose(4)) == 0
    assert len(session.propose(0)) == 0


def test_memory_grows_with_the_length_only() -> None:
    index = NgramIndex(NgramOptions(1, 4))
    index.extend(range(1000))
    assert sum(len(table) for table in index._positions) <= 4 * 1000
    before = sum(len(table) for table in index._positions)
    index.extend([7, 8] * 500)
    assert sum(len(table) for table in index._positions) <= before + 16


def test_a_step_takes_microseconds() -> None:
    session = NgramDrafter().start(context([(i * i) % 997 for i in range(2000)]))
    begin = time.process_time()
    for i in range(500):
        draft = session.propose(8)
        session.observe(observation(draft, 0, ((i * i) % 997,), 0))
    assert (time.process_time() - begin) / 500 < 150e-6


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((0, 3), "min_n=0"),
        ((4, 3), "min_n=4 is larger than max_n=3"),
        ((1, 17), "max_n=17"),
        ((1, 2.5), r"max_n=2\.5"),
    ],
)
def test_options_out_of_range_are_named(values: tuple[int, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        NgramOptions(*values)
