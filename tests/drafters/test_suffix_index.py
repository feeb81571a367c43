"""The counting suffix tree against counting by hand."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from paceline.drafters.suffix_index import NOWHERE, TOP, SuffixIndex

SEQUENCES = st.lists(st.lists(st.integers(0, 2), max_size=30), min_size=1, max_size=4)


def build(sequences: list[list[int]], max_depth: int) -> SuffixIndex:
    """All but the last sequence are closed."""
    index = SuffixIndex(max_depth)
    for sequence in sequences[:-1]:
        index.extend(sequence)
        index.end_sequence()
    index.extend(sequences[-1])
    return index


def count_runs(sequences: list[list[int]], max_depth: int) -> Counter[tuple[int, ...]]:
    """How often every run of up to ``max_depth`` tokens occurs."""
    runs: Counter[tuple[int, ...]] = Counter()
    for sequence in sequences:
        for start in range(len(sequence)):
            for end in range(start + 1, min(len(sequence), start + max_depth) + 1):
                runs[tuple(sequence[start:end])] += 1
    return runs


@given(sequences=SEQUENCES, max_depth=st.integers(1, 6))
def test_counts_are_exact(sequences: list[list[int]], max_depth: int) -> None:
    index = build(sequences, max_depth)
    runs = count_runs(sequences, max_depth)
    for run, count in runs.items():
        place = index.find(run)
        assert place != NOWHERE
        # A place inside the text is a run whose beginning occurred once, so it occurs once itself.
        assert (index.counts[place] if place >= 0 else 1) == count
    assert index.counts[TOP] == sum(map(len, sequences))


@given(
    sequences=SEQUENCES, max_depth=st.integers(1, 6), run=st.lists(st.integers(0, 3), min_size=1, max_size=6)
)
def test_runs_that_never_occurred_are_not_found(
    sequences: list[list[int]], max_depth: int, run: list[int]
) -> None:
    run = run[:max_depth]
    known = tuple(run) in count_runs(sequences, max_depth)
    assert (build(sequences, max_depth).find(run) != NOWHERE) == known


@given(sequences=SEQUENCES, max_depth=st.integers(2, 6))
def test_active_nodes_are_the_runs_that_end_here_and_occurred_before(
    sequences: list[list[int]], max_depth: int
) -> None:
    index = build(sequences, max_depth)
    runs = count_runs(sequences, max_depth)
    last = sequences[-1]
    expected = [n for n in range(1, min(len(last), max_depth - 1) + 1) if runs[tuple(last[-n:])] > 1]
    assert index.match_length == len(expected)
    assert [index.find(last[-n:]) for n in expected] == index.active[1:]


def test_memory_stays_near_two_nodes_per_token_whatever_the_depth() -> None:
    rng = random.Random(5)
    words = [[rng.randrange(1000) for _ in range(rng.randrange(1, 5))] for _ in range(300)]
    text = [token for _ in range(2000) for token in rng.choice(words)]
    index = SuffixIndex(32)
    index.extend(text)
    assert index.num_nodes < 6 * len(text)
    loop = SuffixIndex(32)
    loop.extend([1, 2, 3] * 2000)
    assert loop.num_nodes < 3 * 33 + 40


def test_the_deepest_runs_go_on_as_they_did_last() -> None:
    index = SuffixIndex(3)
    index.extend([1, 2, 3, 9, 1, 2, 3, 8])
    assert index.text[index.tails[index.find([1, 2, 3])]] == 8
