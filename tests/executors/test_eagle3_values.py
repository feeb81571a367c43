"""EAGLE-3 heads give the right numbers: every variant on every path against the float64 reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paceline.executors.cpu import ISA_VARIABLE, available_paths
from paceline.executors.eagle3 import DraftShape, Eagle3Executor
from paceline.records import FloatArray
from support.eagle3_executors import (
    load_head,
    load_target,
    node_batch,
    pairs_batch,
    random_pairs,
    reference_of,
)
from support.eagle3_heads import HEAD_VARIANTS, tiny_head

BLOCKS = tuple(np.random.default_rng(5).permutation(24).tolist())
STORAGES = ("f16", "bf16", "q8_0", "q4_0", "q4_1")
SHAPES = {
    "chain": DraftShape(max_nodes=6, max_depth=6),
    "tree": DraftShape(max_nodes=12, max_depth=5, width=3),
    "bounded": DraftShape(max_nodes=40, max_depth=4, width=4, min_log_prob=-5.0),
    "parents": DraftShape(max_nodes=40, max_depth=5, width=4, min_parent_log_prob=-3.0),
    "wide": DraftShape(max_nodes=30, max_depth=3, width=12),
}


def _close(got: FloatArray, expected: np.ndarray, tolerance: float) -> bool:
    return got.shape == expected.shape and bool(
        np.abs(got - expected).max() <= tolerance * np.abs(expected).max()
    )


@pytest.mark.parametrize("path", available_paths())
@pytest.mark.parametrize("variant", HEAD_VARIANTS)
@pytest.mark.parametrize("count", [1, 5, 100], ids=["one", "replicated", "shared"])
def test_a_chain_equals_the_float64_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str, path: str, count: int
) -> None:
    """Projected states, logits and fed-back states; 100 rows reach past the window, a block and a chunk."""
    monkeypatch.setenv(ISA_VARIABLE, path)
    tiny = tiny_head(variant)
    head, reference = load_head(tiny, load_target(tmp_path)), reference_of(tiny)
    tokens, states = random_pairs(tiny, count)
    g = head.project(states)
    assert _close(g, reference.project(states), 2e-6)
    logits, out = head.forward(pairs_batch(tokens[1:], 0, BLOCKS), g)
    expected_logits, expected_out = reference.chain(tokens[1:], g)
    assert _close(logits, expected_logits, 2e-5)
    assert _close(out, expected_out, 2e-5)


@pytest.mark.parametrize("variant", HEAD_VARIANTS)
def test_rows_of_a_tree_equal_the_float64_reference(tmp_path: Path, variant: str) -> None:
    """Nodes see the pairs behind them, their ancestors and themselves, at the position their depth says."""
    tiny = tiny_head(variant)
    head = load_head(tiny, load_target(tmp_path))
    tokens, states = random_pairs(tiny, 30)
    tree, parents = [5, 6, 7, 8, 9], [-1, -1, 0, 2, 1]
    expected_logits, expected_out = reference_of(tiny).rows_of(tokens, states, tree, parents)
    logits, out = (a.copy() for a in head.forward(pairs_batch(tokens[1:], 0, BLOCKS), head.project(states)))
    for node, (token, parent) in enumerate(zip(tree, parents, strict=True)):
        path = [node]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        g = out[29 if parent < 0 else 30 + parent]
        rows = node_batch(token, 30, [30 + i for i in path], BLOCKS)
        new_logits, new_out = head.forward(rows, g[None])
        logits, out = np.vstack([logits, new_logits]), np.vstack([out, new_out])
    assert _close(logits, expected_logits, 2e-5)
    assert _close(out, expected_out, 2e-5)


@pytest.mark.parametrize("path", available_paths())
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("variant", HEAD_VARIANTS)
def test_drafts_equal_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str, shape: str, path: str
) -> None:
    """From a prompt of 40 pairs, of which the last 7 are caught up in the very call that drafts."""
    monkeypatch.setenv(ISA_VARIABLE, path)
    tiny, wanted = tiny_head(variant), SHAPES[shape]
    head = load_head(tiny, load_target(tmp_path))
    tokens, states = random_pairs(tiny, 40, seed=3)
    head.catch_up(pairs_batch(tokens[1:34], 0, BLOCKS, 0), states[:33])
    got = head.draft(pairs_batch(tokens[34:], 33, BLOCKS, 1), states[33:], wanted)
    expected = reference_of(tiny).draft(
        tokens,
        states,
        width=wanted.width,
        max_depth=wanted.max_depth,
        max_nodes=wanted.max_nodes,
        min_log_prob=wanted.min_log_prob,
        min_parent_log_prob=wanted.min_parent_log_prob,
    )
    assert tuple(got.tokens.tolist()) == expected.tokens
    assert tuple(got.parents.tolist()) == expected.parents
    assert np.abs(got.log_probs - np.array(expected.log_probs)).max(initial=0) <= 2e-4


@pytest.mark.parametrize("path", available_paths())
@pytest.mark.parametrize("storage", STORAGES)
def test_stored_heads_stay_near_the_reference_of_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str, path: str
) -> None:
    """Float kinds to rounding; quantised ones round activations to int8, a few percent on so small a head."""
    monkeypatch.setenv(ISA_VARIABLE, path)
    tiny = tiny_head("layers")
    head, reference = (
        load_head(tiny, load_target(tmp_path), storage=storage),
        reference_of(tiny, storage=storage),
    )
    tokens, states = random_pairs(tiny, 20)
    logits, _ = head.forward(pairs_batch(tokens[1:], 0, BLOCKS), head.project(states))
    expected, _ = reference.chain(tokens[1:], reference.project(states))
    assert _close(logits, expected, 2e-5 if storage in ("f16", "bf16") else 6e-2)


@pytest.mark.parametrize(
    "ggml_type", ["f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k"]
)
def test_borrowed_head_rows_are_the_targets_bit_for_bit(tmp_path: Path, ggml_type: str) -> None:
    target = load_target(tmp_path, "llama", ggml_type)
    width = target.spec.hidden_size
    tiny = tiny_head("shared_head", hidden_size=width, target_hidden_size=width)
    head = load_head(tiny, target)
    mine, theirs = np.empty(width, np.float32), np.empty(width, np.float32)
    for row, token in enumerate(tiny.draft_to_target.tolist()):
        head._model.dequantize_row(-1, "output", row, mine)
        target.model.dequantize_row(-1, "output", token, theirs)
        assert mine.tobytes() == theirs.tobytes(), row


def test_the_embedding_of_a_target_that_scales_it_is_read_plain(tmp_path: Path) -> None:
    """Public heads for Gemma see the plain table. A large epsilon makes the scale show through the norm."""
    tiny = tiny_head("shared_head", norm_eps=0.1)
    target = load_target(tmp_path, "gemma3")
    assert target.spec.embedding_scale > 1
    tokens, states = random_pairs(tiny, 20)
    head, reference = load_head(tiny, target), reference_of(tiny, "gemma3")
    g = head.project(states)
    logits, _ = head.forward(pairs_batch(tokens[1:], 0, BLOCKS), g)
    assert _close(logits, reference.chain(tokens[1:], g)[0], 2e-5)
    scaled = reference_of(tiny, "gemma3")
    scaled._weights["token_embd.weight"] *= target.spec.embedding_scale
    assert not _close(logits, scaled.chain(tokens[1:], g)[0], 1e-3)


def _by_hand(
    head: Eagle3Executor, tokens: list[int], states: FloatArray, depth: int
) -> list[tuple[int, float]]:
    """Draft a greedy chain by one forward per token; return its ids and path log-probabilities."""
    known, score, found = len(states), 0.0, []
    logits, out = head.forward(pairs_batch(tokens[1:], 0, BLOCKS, 1), head.project(states))
    for step in range(depth):
        law = logits[0].astype(np.float64)
        law -= law.max() + np.log(np.exp(law - law.max()).sum())
        score += float(law.max())
        found.append((int(head.draft_to_target[int(law.argmax())]), score))
        rows = pairs_batch([found[-1][0]], known + step, BLOCKS)
        logits, out = head.forward(rows, out[-1:])
    return found


@pytest.mark.parametrize("storage", ["bf16", "q8_0", "q4_0"])
@pytest.mark.parametrize("variant", ["plain", "eagle31", "layer_windows"])
def test_a_draft_equals_forwards_by_hand(tmp_path: Path, variant: str, storage: str) -> None:
    tiny = tiny_head(variant)
    head = load_head(tiny, load_target(tmp_path), storage=storage, cache_type="float16")
    for count in (1, 4, 25):
        tokens, states = random_pairs(tiny, count, seed=count)
        expected = _by_hand(head, tokens, states, depth=7)
        got = head.draft(pairs_batch(tokens[1:], 0, BLOCKS), states, DraftShape(7, 7))
        assert got.tokens.tolist() == [token for token, _ in expected]
        assert got.parents.tolist() == [-1, 0, 1, 2, 3, 4, 5]
        assert np.abs(got.log_probs - np.array([score for _, score in expected])).max() <= 1e-5


def test_fewer_nodes_are_the_best_of_more(tmp_path: Path) -> None:
    """What is left out of the expansion because it cannot come in changes nothing of what comes in."""
    tiny = tiny_head("plain")
    head = load_head(tiny, load_target(tmp_path))
    tokens, states = random_pairs(tiny, 20)
    batch, large = pairs_batch(tokens[1:], 0, BLOCKS), DraftShape(100, 6, 4)
    whole = head.draft(batch, states, large)
    assert (np.diff(whole.log_probs) <= 0).all() and (whole.parents < np.arange(len(whole))).all()
    for size in (1, 2, 5, 17, 60):
        part = head.draft(batch, states, replace(large, max_nodes=size))
        assert part.tokens.tolist() == whole.tokens[:size].tolist()
        assert part.parents.tolist() == whole.parents[:size].tolist()
        assert part.log_probs.tobytes() == whole.log_probs[:size].tobytes()
