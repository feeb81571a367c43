"""Law 7 for heads: bits of a pair depend on its tokens, its states and the weights only.

Every comparison is ``==`` on float bits.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from paceline.executors.base import ForwardBatch
from paceline.executors.cpu import ISA_VARIABLE, available_paths
from paceline.executors.eagle3 import DraftedTree, DraftShape, Eagle3Executor
from paceline.records import FloatArray
from support.eagle3_executors import load_head, load_target, node_batch, pairs_batch, random_pairs
from support.eagle3_heads import TinyHead, tiny_head
from support.native_batches import int32

BLOCKS, OTHERS = tuple(range(12)), tuple(np.random.default_rng(2).permutation(range(12, 24)).tolist())
SHAPE = DraftShape(max_nodes=12, max_depth=5, width=3)
COUNT = 90
TINY: dict[str, TinyHead] = {name: tiny_head(name) for name in ("eagle31", "layer_windows", "shared_head")}


@pytest.fixture(
    params=[
        (variant, storage, path)
        for path in available_paths()
        for variant, storage in (("eagle31", "q8_0"), ("layer_windows", "q4_0"), ("shared_head", "bf16"))
    ],
    ids="-".join,
)
def case(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Eagle3Executor, TinyHead]:
    variant, storage, path = request.param
    monkeypatch.setenv(ISA_VARIABLE, path)
    target = load_target(tmp_path, "llama", "q8_0")
    return load_head(TINY[variant], target, storage=storage, cache_type="float16"), TINY[variant]


def _bits(tree: DraftedTree) -> tuple[bytes, bytes, bytes]:
    return tree.tokens.tobytes(), tree.parents.tobytes(), tree.log_probs.tobytes()


def _rows(
    head: Eagle3Executor, tokens: list[int], g: FloatArray, start: int, end: int, blocks: tuple[int, ...]
) -> FloatArray:
    batch = pairs_batch(tokens[1 + start : 1 + end], start, blocks)
    return np.hstack([a.copy() for a in head.forward(batch, g[start:end])])


def test_any_chunking_gives_the_same_logits_states_and_drafts(case: tuple[Eagle3Executor, TinyHead]) -> None:
    """The last chunk is caught up in the call that drafts; its size must not show either."""
    head, tiny = case
    tokens, states = random_pairs(tiny, COUNT)
    g = head.project(states)
    whole = _rows(head, tokens, g, 0, COUNT, BLOCKS)
    drafted = head.draft(pairs_batch(tokens[1:], 0, BLOCKS), states, SHAPE)
    for size in (1, 4, 9, 40):
        edges = [*range(0, COUNT, size), COUNT]
        chunks = list(pairwise(edges))
        assert np.concatenate([head.project(states[a:b]) for a, b in chunks]).tobytes() == g.tobytes()
        rows = [_rows(head, tokens, g, a, b, OTHERS) for a, b in chunks]
        assert np.concatenate(rows).tobytes() == whole.tobytes(), size
        for a, b in chunks[:-1]:
            head.catch_up(pairs_batch(tokens[1 + a : 1 + b], a, OTHERS, 0), states[a:b])
        a, b = chunks[-1]
        again = head.draft(pairs_batch(tokens[1 + a :], a, OTHERS), states[a:], SHAPE)
        assert _bits(again) == _bits(drafted), size


def test_what_was_drafted_before_leaves_no_trace(case: tuple[Eagle3Executor, TinyHead]) -> None:
    """Drafted pairs carry the head's own states; the catch-up writes the true ones over them."""
    head, tiny = case
    tokens, states = random_pairs(tiny, COUNT)
    fresh = head.draft(pairs_batch(tokens[1:], 0, OTHERS), states, SHAPE)
    end = 50
    first = head.draft(pairs_batch(tokens[1 : 1 + end], 0, BLOCKS), states[:end], SHAPE)
    assert _bits(first) != _bits(fresh)
    while end < COUNT:
        step = min(1 + end % 4, COUNT - end)
        batch = pairs_batch(tokens[1 + end : 1 + end + step], end, BLOCKS)
        last = head.draft(batch, states[end : end + step], SHAPE)
        end += step
    assert _bits(last) == _bits(fresh)


def test_neighbours_do_not_matter(case: tuple[Eagle3Executor, TinyHead]) -> None:
    """Pairs of two sequences in one pass: each as if alone."""
    head, tiny = case
    (mine, my_states), (theirs, their_states) = random_pairs(tiny, 30), random_pairs(tiny, 21, seed=1)
    alone = _rows(head, mine, head.project(my_states), 0, 30, BLOCKS)
    together = ForwardBatch(
        tokens=int32([*theirs[1:], *mine[1:]]),
        sequences=int32([0] * 21 + [1] * 30),
        slots=int32([*range(21), *range(30)]),
        prefix_lengths=int32([*range(1, 22), *range(1, 31)]),
        tail_offsets=int32([0] * 52),
        tails=int32([]),
        block_offsets=int32([0, 12, 24]),
        blocks=int32([*BLOCKS, *OTHERS]),
        logit_rows=int32(range(51)),
    )
    both = np.hstack(head.forward(together, head.project(np.concatenate([their_states, my_states]))))
    assert both[21:].tobytes() == alone.tobytes()


def test_a_node_of_a_tree_equals_the_end_of_its_chain(case: tuple[Eagle3Executor, TinyHead]) -> None:
    """Tails across a block and a chunk of 64 positions: path 3, 5 as siblings' slots and as a plain chain."""
    head, tiny = case
    tokens, states = random_pairs(tiny, 62)
    _, out = head.forward(pairs_batch(tokens[1:], 0, BLOCKS), head.project(states))
    _, first = head.forward(node_batch(11, 62, [65], BLOCKS), out[-1:])
    tree = head.forward(node_batch(12, 62, [65, 67], BLOCKS), first)
    bits = [array.tobytes() for array in tree]
    _, again = head.forward(pairs_batch([11], 62, BLOCKS), out[-1:])
    assert again.tobytes() == first.tobytes()
    chain = head.forward(pairs_batch([12], 63, BLOCKS), again)
    assert [array.tobytes() for array in chain] == bits


@pytest.mark.parametrize("path", available_paths())
def test_thread_count_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv(ISA_VARIABLE, path)
    tiny = TINY["layer_windows"]
    tokens, states = random_pairs(tiny, 40)
    trees = []
    for threads in (1, 2, 3, 5):
        head = load_head(tiny, load_target(tmp_path, num_threads=threads), storage="q8_0")
        trees.append(_bits(head.draft(pairs_batch(tokens[1:], 0, BLOCKS), states, SHAPE)))
    assert all(tree == trees[0] for tree in trees)


def test_chains_longer_than_one_pass_are_split_without_a_trace(tmp_path: Path) -> None:
    tiny = TINY["eagle31"]
    head = load_head(tiny, load_target(tmp_path), storage="q8_0", num_blocks=150)
    tokens, states = random_pairs(tiny, 1100)
    first, second = tuple(range(75)), tuple(range(75, 150))
    at_once = head.draft(pairs_batch(tokens[1:], 0, first), states, SHAPE)
    head.catch_up(pairs_batch(tokens[1:901], 0, second), states[:900])
    in_two = head.draft(pairs_batch(tokens[901:], 900, second), states[900:], SHAPE)
    assert _bits(in_two) == _bits(at_once)
    g = head.project(states)
    logits, out = head.forward(pairs_batch(tokens[1:], 0, first), g)
    assert (logits.shape, out.shape) == ((1100, tiny.spec.draft_vocab_size), (1100, tiny.spec.hidden_size))


def test_other_states_and_other_tokens_give_other_drafts(case: tuple[Eagle3Executor, TinyHead]) -> None:
    """The control: equal bits would be worthless if nothing depended on the inputs."""
    head, tiny = case
    tokens, states = random_pairs(tiny, 10)
    base = _bits(head.draft(pairs_batch(tokens[1:], 0, BLOCKS), states, SHAPE))
    changed = states.copy()
    changed[0] *= -1
    assert _bits(head.draft(pairs_batch(tokens[1:], 0, BLOCKS), changed, SHAPE)) != base
    other = [*tokens[:3], (tokens[3] + 1) % 200, *tokens[4:]]
    assert _bits(head.draft(pairs_batch(other[1:], 0, BLOCKS), states, SHAPE)) != base
