"""The reference of EAGLE-3 against itself: trees against chains, windows, fed-back states, known shifts."""

from __future__ import annotations

import numpy as np
import pytest

from support.eagle3_heads import HEAD_VARIANTS, TinyHead, tiny_head
from support.eagle3_reference import Array, Eagle3Reference
from support.tiny_tokenizer import VOCAB_SIZE

TOKENS = [5, 91, 17, 200, 33, 8, 140]


def reference_of(head: TinyHead, seed: int = 1) -> tuple[Eagle3Reference, Array]:
    """Return the reference and random states [N, n * Ht] of all tokens but the root."""
    rng = np.random.default_rng(seed)
    width = head.spec.hidden_size
    embedding, output = rng.normal(size=(VOCAB_SIZE, width)), rng.normal(size=(VOCAB_SIZE, width))
    columns = head.spec.num_states * head.spec.target_hidden_size
    states = rng.normal(size=(len(TOKENS) - 1, columns)) * 3
    reference = Eagle3Reference(
        head.spec, head.weights, head.draft_to_target, target_embedding=embedding, target_head=output
    )
    return reference, states


@pytest.mark.parametrize("variant", HEAD_VARIANTS)
def test_a_chain_is_what_one_step_at_a_time_gives(variant: str) -> None:
    """Draft by hand, three times: append the pair (fed-back state, drafted token), read the last row."""
    reference, states = reference_of(tiny_head(variant))
    g, ids = reference.project(states), TOKENS[1:]
    drafted, log_prob, log_probs = [], 0.0, []
    for _ in range(3):
        logits, out = reference.chain(ids, g)
        best = int(logits[-1].argmax())
        log_prob += float(logits[-1, best] - np.log(np.exp(logits[-1]).sum()))
        drafted.append(int(reference.draft_to_target[best]))
        log_probs.append(log_prob)
        g, ids = np.vstack([g, out[-1]]), [*ids, drafted[-1]]
    tree = reference.draft(TOKENS, states, width=1, max_depth=3, max_nodes=3)
    assert tree.tokens == tuple(drafted) and tree.parents == (-1, 0, 1)
    assert np.allclose(tree.log_probs, log_probs, atol=1e-9)


def test_a_node_is_computed_as_if_its_path_were_a_chain() -> None:
    reference, states = reference_of(tiny_head("layer_windows"))
    tree = reference.draft(TOKENS, states, width=3, max_depth=3, max_nodes=12)
    assert len(tree.tokens) == 12 and len(set(tree.parents)) > 4
    logits, _ = reference.rows_of(TOKENS, states, tree.tokens, tree.parents)
    for node in range(12):
        path, at = [], node
        while at >= 0:
            path.append(at)
            at = tree.parents[at]
        tokens = [tree.tokens[i] for i in reversed(path)]
        alone, _ = reference.rows_of(TOKENS, states, tokens, range(-1, len(tokens) - 1))
        assert np.allclose(alone[-1], logits[len(states) + node], atol=1e-9)


def test_a_tree_is_sized_and_cut_by_path_probability() -> None:
    reference, states = reference_of(tiny_head())
    whole = reference.draft(TOKENS, states, width=3, max_depth=3, max_nodes=1000)
    assert len(whole.tokens) == 3 + 9 + 9
    assert list(whole.log_probs) == sorted(whole.log_probs, reverse=True)
    assert all(parent < node for node, parent in enumerate(whole.parents))
    few = reference.draft(TOKENS, states, width=3, max_depth=3, max_nodes=7)
    assert few.tokens == whole.tokens[:7] and few.parents == whole.parents[:7]
    floor = whole.log_probs[9] - 1e-9
    cut = reference.draft(TOKENS, states, width=3, max_depth=3, max_nodes=1000, min_log_prob=floor)
    assert cut.tokens == whole.tokens[:10] and cut.parents == whole.parents[:10]


@pytest.mark.parametrize("variant", ["plain", "residual", "state_norms", "eagle31", "input_norm"])
def test_each_variant_is_another_function(variant: str) -> None:
    """Flags that change nothing would let an executor that ignores them pass."""
    plain = tiny_head("input_norm" if variant == "plain" else "plain")
    other = tiny_head(variant)
    shared = {
        **other.weights,
        **{name: plain.weights[name] for name in plain.weights if name in other.weights},
    }
    reference, states = reference_of(plain)
    changed = reference_of(TinyHead(other.spec, shared, plain.draft_to_target))[0]
    ours = reference.draft(TOKENS, states, width=1, max_depth=4, max_nodes=4).log_probs
    theirs = changed.draft(TOKENS, states, width=1, max_depth=4, max_nodes=4).log_probs
    assert not np.allclose(ours, theirs)


def test_a_window_hides_what_lies_behind_it() -> None:
    """With a window of 2, changing the first pair's state changes rows 0 and 1 and no other."""
    reference, states = reference_of(tiny_head("window", layer_windows=(2,)))
    g = reference.project(states)
    before, _ = reference.chain(TOKENS[1:], g)
    g[0] += 1.0
    after, _ = reference.chain(TOKENS[1:], g)
    changed = np.abs(before - after).max(axis=1) > 1e-9
    assert changed.tolist() == [True, True, False, False, False, False]
