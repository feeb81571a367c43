"""Scored trees: merging keeps the best nodes, confidence learns what was really accepted."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.drafters.scored_tree import ConfidenceTable, ScoredTree, merge_trees
from paceline.tree import ROOT, TokenTree


@st.composite
def scored_trees(draw: st.DrawFn) -> ScoredTree:
    """A valid tree of up to eight nodes, best node first."""
    size = draw(st.integers(0, 8))
    nodes: list[tuple[int, int, float]] = []
    seen: set[tuple[int, int]] = set()
    for node in range(size):
        parent = draw(st.integers(ROOT, node - 1))
        token = draw(st.integers(0, 3))
        if (parent, token) in seen or (parent != ROOT and parent >= len(nodes)):
            continue
        seen.add((parent, token))
        above = 1.0 if parent == ROOT else nodes[parent][2]
        nodes.append((parent, token, above * draw(st.sampled_from([0.2, 0.5, 0.9]))))
    order = sorted(range(len(nodes)), key=lambda node: (-nodes[node][2], node))
    place = {ROOT: ROOT} | {node: index for index, node in enumerate(order)}
    tree = ScoredTree()
    for node in order:
        parent, token, path = nodes[node]
        tree.add(token, place[parent], 0.5, path)
    return tree


def best_paths(tree: ScoredTree) -> dict[tuple[int, ...], float]:
    return {tuple(tree.path_tokens(node)): tree.paths[node] for node in range(len(tree))}


@given(trees=st.lists(scored_trees(), max_size=3), limit=st.integers(0, 10))
def test_merging_keeps_the_likeliest_paths_of_all(trees: list[ScoredTree], limit: int) -> None:
    whole = best_paths(merge_trees(trees, 99))
    for path, value in whole.items():
        claims = [best_paths(tree)[path] for tree in trees if path in best_paths(tree)]
        independent = 1.0 - math.prod(1.0 - claim for claim in claims)
        assert max(claims) - 1e-12 <= value <= independent + 1e-12
        assert value <= (whole[path[:-1]] if len(path) > 1 else 1.0)
    assert set(whole) == {path for tree in trees for path in best_paths(tree)}
    merged = merge_trees(trees, limit)
    assert merged.paths == sorted(whole.values(), reverse=True)[:limit]
    assert all(whole[path] == value for path, value in best_paths(merged).items())
    TokenTree(tuple(merged.tokens), tuple(merged.parents))  # valid, or it raises


def test_two_that_agree_are_surer_than_one() -> None:
    first, second = ScoredTree(), ScoredTree()
    first.add(5, ROOT, 0.5, 0.5)
    second.add(5, ROOT, 0.4, 0.4)
    second.add(6, ROOT, 0.3, 0.3)
    merged = merge_trees([first, second], 2)
    assert merged.tokens == [5, 6]
    assert merged.paths == pytest.approx([0.7, 0.3])


def test_an_estimate_moves_from_the_prior_to_the_data() -> None:
    table = ConfidenceTable()
    assert table.estimate(0.8) == pytest.approx(0.8)
    for _ in range(200):
        table.learn(0.8, False)
    assert table.estimate(0.8) < 0.25
    assert table.estimate(0.3) == pytest.approx(0.3)  # other bins know nothing of it
    for _ in range(200):
        table.learn(0.8, True)
    assert table.estimate(0.8) > 0.9


def test_only_nodes_below_the_committed_path_count() -> None:
    tree = ScoredTree()
    a = tree.add(1, ROOT, 0.9, 0.9)
    tree.add(2, ROOT, 0.1, 0.1)
    b = tree.add(3, a, 0.6, 0.5)
    tree.add(4, b, 0.3, 0.2)
    trials: list[tuple[float, bool]] = []

    class Spy(ConfidenceTable):
        __slots__ = ()

        def learn(self, raw: float, accepted: bool) -> None:
            trials.append((raw, accepted))

    tree.learn(Spy(), (1, 7, 4))
    assert trials == [(0.9, True), (0.1, False), (0.6, False)]
    trials.clear()
    tree.learn(Spy(), (1,))
    assert trials == [(0.9, True), (0.1, False)]


def test_a_threshold_cuts_the_tail() -> None:
    tree = ScoredTree()
    tree.add(1, ROOT, 0.9, 0.9)
    tree.add(2, 0, 0.5, 0.45)
    tree.add(3, 1, 0.5, 0.2)
    assert tree.count_above(0.4, 9) == 2
    assert tree.count_above(0.4, 1) == 1
    assert len(tree.draft(2)) == 2
    assert len(tree.draft(0)) == 0
