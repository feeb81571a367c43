"""A draft head in numpy for the fake executor: it guesses what that will choose, and remembers what it read.

Per physical slot it keeps the pair that was written there (hidden state, next token). Its logits know the
noise of the last two tokens, which dominates the target's, and bear a trace of every pair in the cache, so a
lost, stale or misplaced pair changes them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from paceline.drafters.eagle3 import Eagle3Drafter, Eagle3Head, Eagle3Options
from paceline.executors.base import ForwardBatch
from paceline.executors.eagle3 import DraftedTree, DraftShape
from paceline.kv.block_pool import BlockPool
from paceline.records import FloatArray, IntArray
from paceline.tree import ROOT
from support.eagle3_heads import tiny_spec
from support.fake_executor import FakeExecutor, path_state

LAYERS = (2, 5, 9)
Pairs = list[tuple[bytes, int]]


@dataclass
class FakeHead:
    """See the module. ``fail_at``: number of the pass that raises ``RuntimeError``, counted from 0."""

    target: FakeExecutor
    draft_to_target: IntArray
    num_blocks: int = 64
    block_size: int = 4
    max_context: int = 4096
    fail_at: int = -1
    rows_per_pass: list[int] = field(default_factory=list)
    shapes: list[DraftShape] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pairs: dict[int, tuple[bytes, int]] = {}
        self.spec = tiny_spec(max_context=self.max_context)
        self.state_layers = LAYERS

    def catch_up(self, batch: ForwardBatch, states: FloatArray) -> None:
        assert not len(batch.logit_rows)
        self.forward(batch, self.project(states))

    def project(self, states: FloatArray) -> FloatArray:
        assert states.dtype == np.float32
        assert states.shape[1] == len(LAYERS) * self.target.state_size
        return states

    def forward(self, batch: ForwardBatch, g: FloatArray) -> tuple[FloatArray, FloatArray]:
        if len(self.rows_per_pass) == self.fail_at:
            raise RuntimeError("the fake head was told to fail")
        self.rows_per_pass.append(len(batch.tokens))
        assert len(g) == len(batch.tokens) == len(batch.slots)
        logits, out = [], []
        for row, token in enumerate(batch.tokens.tolist()):
            self.pairs[self.physical(batch.blocks, int(batch.slots[row]))] = (g[row].tobytes(), token)
            seen = self.seen(batch.blocks, int(batch.prefix_lengths[row]))
            out.append(self.output(seen))
            if row in batch.logit_rows:
                logits.append(self.logits(seen))
        width = len(self.draft_to_target)
        return np.array(logits, np.float32).reshape(-1, width), np.array(out, np.float32)

    def draft(self, batch: ForwardBatch, states: FloatArray, shape: DraftShape) -> DraftedTree:
        """Grow a tree as the native call does; the rows of drafted nodes take the slots behind."""
        self.shapes.append(shape)
        logits, _ = self.forward(batch, self.project(states))
        length = int(batch.prefix_lengths[-1])
        root = self.seen(batch.blocks, length)
        nodes: list[tuple[float, int, int]] = []  # log-probability of the path, token, parent
        level = [(ROOT, 0.0, root, logits[-1])]
        used = length
        for depth in range(1, shape.max_depth + 1):
            found = [
                (above + log_prob, token, parent)
                for parent, above, _, row in level
                for token, log_prob in self.best(row, shape.width)
            ]
            pairs_of = {parent: pairs for parent, _, pairs, _ in level}
            first = len(nodes)
            found = [node for node in found if node[0] >= shape.min_log_prob]
            nodes += sorted(found, key=lambda node: -node[0])
            if depth == shape.max_depth:
                break
            level = []
            for node in range(first, min(len(nodes), first + shape.width)):
                log_prob, token, parent = nodes[node]
                if log_prob < shape.min_parent_log_prob:
                    continue
                assert used < length + shape.num_slots
                self.pairs[self.physical(batch.blocks, used)] = (b"drafted", token)
                used += 1
                pairs = [*pairs_of[parent], (self.output(pairs_of[parent]).tobytes(), token)]
                level.append((node, log_prob, pairs, self.logits(pairs)))
            if not level:
                break
        return best_first(nodes, shape.max_nodes)

    def best(self, logits: FloatArray, count: int) -> list[tuple[int, float]]:
        """Return the likeliest target ids and their log-probabilities."""
        log_probs = logits - np.log(np.exp(logits).sum())
        order = np.argsort(-log_probs, kind="stable")[:count]
        return [(int(self.draft_to_target[i]), float(log_probs[i])) for i in order]

    def logits(self, seen: Pairs) -> FloatArray:
        tokens = tuple(token for _, token in seen[-2:])
        local = np.random.default_rng((1, *tokens)).standard_normal(self.target.vocab_size)
        trace = np.random.default_rng(digest(seen)).standard_normal(self.target.vocab_size)
        return (self.target.spread * (local + 0.02 * trace)[self.draft_to_target]).astype(np.float32)

    def output(self, seen: Pairs) -> FloatArray:
        size = len(LAYERS) * self.target.state_size
        return np.random.default_rng((5, digest(seen))).standard_normal(size).astype(np.float32)

    def seen(self, blocks: IntArray, length: int) -> Pairs:
        return [self.pairs[self.physical(blocks, slot)] for slot in range(length)]

    def physical(self, blocks: IntArray, slot: int) -> int:
        return int(blocks[slot // self.block_size]) * self.block_size + slot % self.block_size


def digest(seen: Pairs) -> int:
    text = b"".join(state + token.to_bytes(4, "little") for state, token in seen)
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def best_first(nodes: list[tuple[float, int, int]], limit: int) -> DraftedTree:
    """Return the likeliest nodes in falling order, parents before children."""
    order = sorted(range(len(nodes)), key=lambda node: (-nodes[node][0], node))[:limit]
    place = {ROOT: ROOT} | {node: i for i, node in enumerate(order)}
    return DraftedTree(
        np.array([nodes[node][1] for node in order], np.int32),
        np.array([place[nodes[node][2]] for node in order], np.int32),
        np.array([nodes[node][0] for node in order], np.float32),
    )


def true_states(known: tuple[int, ...], start: int, end: int, size: int = 3) -> FloatArray:
    """Return what the fake executor would say of positions ``start`` … ``end - 1``."""
    rows = [
        np.concatenate([path_state(known[: position + 1], layer, size) for layer in LAYERS])
        for position in range(start, end)
    ]
    return np.array(rows, np.float32).reshape(end - start, len(LAYERS) * size)


def head_drafter(head: FakeHead, options: Eagle3Options) -> Eagle3Drafter:
    return Eagle3Drafter(
        Eagle3Head("fake", head, BlockPool(head.num_blocks)),  # type: ignore[arg-type]
        options=options,
    )


def all_ids(target: FakeExecutor) -> IntArray:
    return np.arange(target.vocab_size, dtype=np.int32)
