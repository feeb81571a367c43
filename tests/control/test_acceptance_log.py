"""What counts as a judged position, and how tallies, windows and labels are kept."""

from __future__ import annotations

import pytest

from paceline.control.acceptance_log import (
    MAX_DEPTH,
    MAX_SERIES,
    NUM_WINDOWS,
    OTHER,
    AcceptanceLog,
    Judged,
    Tally,
    judge,
)
from paceline.tree import TokenTree

CHAIN = TokenTree.chain((5, 6, 7))
BRANCHES = TokenTree((1, 2, 3), (-1, -1, 0))
"""Two children of the root; the first has a child of its own."""


@pytest.mark.parametrize(
    ("tree", "path", "committed", "expected"),
    [
        (CHAIN, (), 1, Judged(0, True)),
        (CHAIN, (0, 1), 3, Judged(2, True)),
        (CHAIN, (0, 1, 2), 4, Judged(3, False)),
        (CHAIN, (0, 1, 2), 2, Judged(2, False)),  # a stop rule fired inside the path
        (CHAIN, (0,), 1, Judged(1, False)),  # and here on its last accepted token
        (BRANCHES, (1,), 2, Judged(1, False)),  # the branch taken ends here: nothing was refused
        (BRANCHES, (0,), 2, Judged(1, True)),
        (BRANCHES, (0, 2), 3, Judged(2, False)),
    ],
)
def test_positions_the_target_judged(
    tree: TokenTree, path: tuple[int, ...], committed: int, expected: Judged
) -> None:
    assert judge(tree, path, committed) == expected


def test_a_tally_counts_by_depth() -> None:
    tally = Tally()
    tally.add(Judged(2, True), num_draft_tokens=5, num_tokens=3)
    tally.add(Judged(0, True), num_draft_tokens=4, num_tokens=1)
    tally.add(Judged(1, False), num_draft_tokens=1, num_tokens=2)
    assert (tally.accepted_at, tally.tried_at) == ([2, 1, 0], [3, 1, 1])
    assert tally.conditional_acceptance_at == (2 / 3, 1.0, 0.0)
    assert (tally.num_positions, tally.num_accepted, tally.rate) == (5, 3, 0.6)
    assert (tally.num_drafts, tally.num_draft_tokens, tally.num_tokens) == (3, 10, 6)


def test_deep_positions_share_the_last_depth() -> None:
    tally = Tally()
    tally.add(Judged(MAX_DEPTH + 3, True))
    assert len(tally.tried_at) == MAX_DEPTH
    assert (tally.accepted_at[-1], tally.tried_at[-1]) == (4, 5)


def test_windows_are_of_output_tokens_and_the_oldest_go() -> None:
    series = AcceptanceLog(window_tokens=10).of("ngram", "code")
    for _ in range(10 * (NUM_WINDOWS + 3)):
        series.add(Judged(1, True), 4, 2)
    assert len(series.windows) == NUM_WINDOWS
    assert all(window.tally.num_tokens == 10 for window in series.windows)
    assert series.total.num_tokens == 20 * (NUM_WINDOWS + 3)
    assert all(window.began <= window.ended for window in series.windows)


def test_labels_of_callers_cannot_fill_the_memory() -> None:
    log = AcceptanceLog(64)
    for number in range(MAX_SERIES + 50):
        log.of("ngram", f"label {number}").add(Judged(1, False), 1, 2)
    assert len(log.series()) == MAX_SERIES + 1
    assert log.of("ngram", OTHER).total.num_drafts == 50
