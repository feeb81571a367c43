"""What a draft head would have drafted at each position of a reply: recorded once, replayed without a model.

:class:`HeadRecorder` is a drafter that has the head draft a full tree at every position, keeps it and
proposes nothing, so the target decodes plainly. :class:`RecordedHead` stands in for the head's executor and
gives those trees back, cut to the shape that is asked for: the session and everything above it are the real
ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.drafters.base import DraftContext, DrafterCapabilities
from paceline.drafters.eagle3 import Eagle3Drafter, Eagle3Head, Eagle3Options
from paceline.drafters.head_sequence import HeadSequence
from paceline.executors.base import ForwardBatch
from paceline.executors.eagle3 import DraftedTree, DraftShape
from paceline.kv.block_pool import BlockPool
from paceline.records import EMPTY_DRAFT, Draft, FloatArray, HiddenStates, IntArray, StepObservation
from paceline.tree import ROOT

if TYPE_CHECKING:
    from paceline.llm import LLM

FULL = DraftShape(max_nodes=32, max_depth=7, width=3)
"""More than any draft keeps: a cut-off that drops parents makes room for less likely nodes."""

PlainTree = tuple[list[int], list[int], list[float]]


class HeadRecorder:
    """See the module. ``trees``: per request, by number of committed tokens (prompt included)."""

    name = "head_recorder"

    def __init__(self, head: Eagle3Head) -> None:
        self.head = head
        self.trees: dict[str, dict[int, PlainTree]] = {}

    @property
    def capabilities(self) -> DrafterCapabilities:
        return DrafterCapabilities(state_layers=tuple(self.head.executor.state_layers))

    def start(self, context: DraftContext) -> _RecorderSession:
        trees = self.trees[context.request_id] = {}
        return _RecorderSession(self.head, context, trees)


class _RecorderSession:
    def __init__(self, head: Eagle3Head, context: DraftContext, trees: dict[int, PlainTree]) -> None:
        self._executor = head.executor
        self._sequence = HeadSequence(head, context.prompt_token_ids)
        self._trees = trees

    def propose(self, budget: int) -> Draft:
        opened = self._sequence.open(spare=FULL.num_slots) if self._sequence.is_complete else None
        if opened is not None:
            states, batch = opened
            tree = self._executor.draft(batch, states, FULL)
            self._sequence.close()
            log_probs = [round(value, 4) for value in tree.log_probs.tolist()]
            self._trees[len(self._sequence.tokens)] = (tree.tokens.tolist(), tree.parents.tolist(), log_probs)
        return EMPTY_DRAFT

    def observe(self, step: StepObservation) -> None:
        self._sequence.observe(step.states, step.committed)

    def stop(self) -> None:
        self._sequence.release()


def recorder_of(llm: LLM) -> HeadRecorder:
    """Return a recorder of the target's shipped head."""
    head = llm._load_head("")
    if head is None:
        raise SystemExit("no head comes with Paceline for this model: leave out --head")
    return HeadRecorder(head)


@dataclass
class RecordedHead:
    """A head's executor that knows only the trees of one reply: ``trees[i]`` follows its token i."""

    trees: list[Any] = field(default_factory=list)
    prompt_length: int = 0
    num_blocks: int = 4096
    block_size: int = 32
    state_layers: tuple[int, ...] = (0,)
    draft_to_target: IntArray = field(default_factory=lambda: np.arange(1, dtype=np.int32))
    spec: Any = field(default_factory=lambda: SimpleNamespace(max_context=1 << 20))

    def catch_up(self, batch: ForwardBatch, states: FloatArray) -> None:
        pass

    def draft(self, batch: ForwardBatch, states: FloatArray, shape: DraftShape) -> DraftedTree:
        """Return the recorded tree behind the last pair, cut to ``shape``."""
        index = int(batch.prefix_lengths[-1]) - self.prompt_length
        tokens, parents, log_probs = self.trees[index] or ([], [], [])
        place, depths = {ROOT: ROOT}, {ROOT: 0}
        score = {ROOT: 0.0, **dict(enumerate(log_probs))}
        kept: list[int] = []
        for node, parent in enumerate(parents):
            grows = parent == ROOT or score[parent] >= shape.min_parent_log_prob
            if parent in place and grows and depths[parent] < shape.max_depth and len(kept) < shape.max_nodes:
                place[node], depths[node] = len(kept), depths[parent] + 1
                kept.append(node)
        return DraftedTree(
            np.array([tokens[node] for node in kept], np.int32),
            np.array([place[parents[node]] for node in kept], np.int32),
            np.array([log_probs[node] for node in kept], np.float32),
        )


def recorded_drafter(head: RecordedHead, vocab_size: int, options: Eagle3Options) -> Eagle3Drafter:
    """Return the real drafter over recorded trees, which hold the target's ids already."""
    head.draft_to_target = np.arange(vocab_size, dtype=np.int32)
    opened = Eagle3Head("recorded", head, BlockPool(head.num_blocks))  # type: ignore[arg-type]
    return Eagle3Drafter(opened, options=options)


def states_of(start: int, end: int) -> HiddenStates:
    """Return stand-ins for hidden states: recorded heads only count them."""
    return HiddenStates(start, np.zeros((end - start, 1), np.float32))
