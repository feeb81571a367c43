"""Lay pending tokens and drafts of all requests into one ragged batch and run one target forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from paceline.engine.chain_batch import chain_batch
from paceline.engine.scheduler import Plan
from paceline.executors.base import Executor, ForwardBatch
from paceline.records import Draft, FloatArray
from paceline.tree import ROOT


@dataclass(slots=True)
class BatchBuilder:
    """Collects rows; the field names are those of :class:`ForwardBatch`."""

    tokens: list[int] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    prefix_lengths: list[int] = field(default_factory=list)
    tail_offsets: list[int] = field(default_factory=lambda: [0])
    tails: list[int] = field(default_factory=list)
    block_offsets: list[int] = field(default_factory=lambda: [0])
    blocks: list[int] = field(default_factory=list)
    logit_rows: list[int] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        return len(self.tokens)

    def add(self, plan: Plan, draft: Draft) -> int:
        """Add one request's rows; return how many rows of logits it gets (root first, then the nodes)."""
        request = plan.request
        sequence = len(self.block_offsets) - 1
        self.blocks.extend(request.table.blocks)
        self.block_offsets.append(len(self.blocks))
        start, stop = request.computed, request.computed + plan.num_pending
        self.tokens.extend(request.tokens[start:stop])
        self.slots.extend(range(start, stop))
        self.prefix_lengths.extend(range(start + 1, stop + 1))
        self.tail_offsets.extend([len(self.tails)] * plan.num_pending)
        self.sequences.extend([sequence] * (plan.num_pending + len(draft)))
        if not plan.reaches_end:
            return 0
        root_row = len(self.tokens) - 1
        self._add_tree(draft, stop)
        self.logit_rows.extend(range(root_row, root_row + 1 + len(draft)))
        return 1 + len(draft)

    def _add_tree(self, draft: Draft, base: int) -> None:
        """Add drafted nodes: node i takes slot ``base + i`` and sees its own path alone.

        As far as a path fills the slots behind the root without a gap, it counts as prefix: a chain has no
        tails.
        """
        paths: list[list[int]] = []
        for node, (token, parent) in enumerate(zip(draft.tree.tokens, draft.tree.parents, strict=True)):
            path = [node] if parent == ROOT else [*paths[parent], node]
            paths.append(path)
            gapless = len(path) if path[-1] == len(path) - 1 else _gapless(path)
            self.tokens.append(token)
            self.slots.append(base + node)
            self.prefix_lengths.append(base + gapless)
            self.tails.extend(base + ancestor for ancestor in path[gapless:])
            self.tail_offsets.append(len(self.tails))

    def build(self) -> ForwardBatch:
        """Return the batch."""
        return ForwardBatch(
            tokens=_ints(self.tokens),
            sequences=_ints(self.sequences),
            slots=_ints(self.slots),
            prefix_lengths=_ints(self.prefix_lengths),
            tail_offsets=_ints(self.tail_offsets),
            tails=_ints(self.tails),
            block_offsets=_ints(self.block_offsets),
            blocks=_ints(self.blocks),
            logit_rows=_ints(self.logit_rows),
        )


@dataclass(frozen=True, slots=True)
class Verified:
    """What a forward says of one plan.

    ``logits`` float32 [1 + nodes, V], the root's row first; [0, V] when the prompt is not read yet. The next
    forward overwrites them. ``states`` float32 [pending + nodes, W]: hidden states of all its rows, ``None``
    unless its drafter wants them.
    """

    logits: FloatArray
    states: FloatArray | None = None


def verify(executor: Executor, plans: Sequence[Plan], drafts: Sequence[Draft]) -> list[Verified]:
    """Run one forward; one answer per plan."""
    if len(plans) == 1 and drafts[0].tree.is_gapless():
        return [_verify_chain(executor, plans[0], drafts[0])]
    builder = BatchBuilder()
    counts, ends = [], [0]
    for plan, draft in zip(plans, drafts, strict=True):
        counts.append(builder.add(plan, draft))
        ends.append(builder.num_rows)
    layers = sorted({layer for plan in plans for layer in plan.request.wanted_layers})
    states: FloatArray | None = None
    if layers:
        logits, states = executor.forward_with_states(builder.build(), layers)
    else:
        logits = executor.forward(builder.build())
    answers, start = [], 0
    for plan, count, first, end in zip(plans, counts, ends, ends[1:], strict=False):
        wanted = plan.request.wanted_layers
        own = None if states is None or not wanted else _columns(states[first:end], layers, wanted)
        answers.append(Verified(logits[start : start + count], own))
        start += count
    return answers


def _verify_chain(executor: Executor, plan: Plan, draft: Draft) -> Verified:
    batch, wanted = chain_batch(plan, draft), plan.request.wanted_layers
    if not wanted:
        return Verified(executor.forward(batch))
    layers = sorted(wanted)
    logits, states = executor.forward_with_states(batch, layers)
    return Verified(logits, _columns(states, layers, wanted))


def _columns(states: FloatArray, layers: Sequence[int], wanted: tuple[int, ...]) -> FloatArray:
    """Return the columns of ``states`` [N, len(layers) * Ht] that belong to ``wanted`` layers, in order."""
    if list(wanted) == list(layers):
        return states
    width = states.shape[1] // len(layers)
    starts = [layers.index(layer) * width for layer in wanted]
    return np.concatenate([states[:, start : start + width] for start in starts], axis=1)


def _gapless(path: list[int]) -> int:
    length = 0
    while length < len(path) and path[length] == length:
        length += 1
    return length


def _ints(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)
