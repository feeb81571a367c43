"""Parity: the trainer and the engine must mean the same head, the same states, the same drafts.

A head that trains well and accepts nothing was most often served other inputs than it learnt from: another
layer, another rotation, states of another row. Two checks on held-out sequences show that at once:

- the states on disk against those of the executor, computed again in the passes of serving (a prompt in
  chunks, then a few rows at a time, in other blocks), bit for bit;
- greedy drafts of the exported head, by the engine's native code and by PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from paceline.errors import DrafterError
from paceline.executors.base import ForwardBatch
from paceline.executors.eagle3 import DraftShape, Eagle3Executor
from paceline.train.capture import StateExecutor
from paceline.train.captured import CapturedSequence, from_bfloat16, to_bfloat16
from paceline.train.greedy import GreedyChains, leading_matches
from paceline.train.head import HeadWeights
from paceline.train.ttt import Rotary

if TYPE_CHECKING:
    from torch import Tensor

SERVED_ROWS = (1, 4, 1, 2, 8, 3)
"""Rows of the passes behind the prompt, in turns: plain steps and verified drafts."""
MIN_AGREEMENT = 0.95
"""Least share of drafted tokens that both must choose alike where their prefixes agree. Storage in 8 bits
and sums in another order flip a choice where two tokens are nearly as likely; a wrong layer, rotation or
pairing leaves almost nothing alike."""
CHANCE = 3.0
"""Standard errors by which the share found in few chains may fall below: one in 700 does by chance alone."""
MAX_ACCEPTED_DIFFERENCE = 0.05
"""Most that mean accepted lengths on the same places may differ, as a share of the larger one."""
MIN_CHAINS = 20
"""Positions that fewer chains have reached alike are reported, not judged."""


@dataclass(frozen=True, slots=True)
class StateParity:
    """``num_different``: rows whose states are not the same bits."""

    num_rows: int
    num_different: int


@dataclass
class DraftParity:
    """Over chains of ``depth`` tokens. ``alike[i]`` of ``reached[i]`` chains that agree up to position i do
    so there too. ``trainer_accepted``, ``engine_accepted``: tokens that the target's own reply confirms."""

    depth: int
    num_chains: int = 0
    trainer_accepted: int = 0
    engine_accepted: int = 0
    alike: list[int] = field(default_factory=list)
    reached: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.alike = [0] * self.depth
        self.reached = [0] * self.depth

    def add(self, trainer: Sequence[int], engine: Sequence[int], truth: Sequence[int]) -> None:
        """Count one chain, drafted by both."""
        self.num_chains += 1
        self.trainer_accepted += leading_matches(trainer, truth)
        self.engine_accepted += leading_matches(engine, truth)
        same = leading_matches(trainer, engine)
        for position in range(min(same + 1, self.depth)):
            self.reached[position] += 1
            self.alike[position] += position < same

    @property
    def agreement_at(self) -> tuple[float, ...]:
        return tuple(
            same / count if count else 0.0 for same, count in zip(self.alike, self.reached, strict=True)
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "agreement_at": list(self.agreement_at)}


def check_states(
    executor: StateExecutor, sequences: Sequence[CapturedSequence], layers: tuple[int, ...]
) -> StateParity:
    """Compute the states of ``sequences`` again as serving does, and count rows that differ."""
    num_rows = num_different = 0
    for item in sequences:
        again = [to_bfloat16(part) for part in _served_states(executor, item, layers)]
        different = (np.concatenate(again) != item.states).any(axis=1)
        num_rows += len(different)
        num_different += int(different.sum())
    return StateParity(num_rows, num_different)


def _served_states(
    executor: StateExecutor, item: CapturedSequence, layers: tuple[int, ...]
) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    count = -(-len(item.tokens) // executor.block_size)
    blocks = np.arange(executor.num_blocks - 1, executor.num_blocks - 1 - count, -1, dtype=np.int32)
    middle = item.response_start // 2
    cuts = [0, *([middle] if middle else []), item.response_start]
    while cuts[-1] < len(item.tokens):
        cuts.append(min(len(item.tokens), cuts[-1] + SERVED_ROWS[len(cuts) % len(SERVED_ROWS)]))
    states = []
    for start, end in pairwise(cuts):
        batch = ForwardBatch.chain(item.tokens[start:end], start, blocks, 1)
        states.append(executor.forward_with_states(batch, layers)[1])
    return states


def check_drafts(
    native: Eagle3Executor,
    weights: HeadWeights,
    embedding: Tensor,
    sequences: Sequence[CapturedSequence],
    *,
    depth: int,
    places: int = 8,
) -> DraftParity:
    """Draft from up to ``places`` places of each sequence by both and compare.

    ``weights`` float32 of the very files ``native`` was loaded from; ``embedding`` [V, H] the target's.
    """
    result = DraftParity(depth)
    longest = max(len(item.tokens) for item in sequences) + depth
    rotary = Rotary(weights.spec.rope.inverse_frequencies, longest)
    to_target = torch.from_numpy(native.draft_to_target.astype(np.int64))
    for item in sequences:
        tokens = torch.from_numpy(item.tokens.astype(np.int64))
        states = from_bfloat16(item.states[:, : weights.spec.num_states * weights.spec.target_hidden_size])
        usable = len(item.tokens) - 1
        chains = GreedyChains(
            weights, embedding, to_target, rotary, torch.from_numpy(states[:usable]), tokens
        )
        first = max(0, item.response_start - 1)
        wanted = np.unique(np.linspace(first, usable - 1, places).astype(int)).tolist()
        for pair, engine in zip(wanted, _native_drafts(native, item, states, wanted, depth), strict=True):
            trainer, _ = chains.draft(pair, depth)
            result.add(trainer, engine, item.tokens[pair + 2 :].tolist())
    return result


def _native_drafts(
    native: Eagle3Executor,
    item: CapturedSequence,
    states: np.ndarray[Any, np.dtype[np.float32]],
    pairs: Sequence[int],
    depth: int,
) -> list[list[int]]:
    """Return the engine's chains behind rising ``pairs``, catching up from one to the next as it serves."""
    blocks = np.arange(-(-(len(item.tokens) + depth) // native.block_size), dtype=np.int32)
    shape = DraftShape(max_nodes=depth, max_depth=depth, width=1)
    drafts, start = [], 0
    for pair in pairs:
        batch = ForwardBatch.chain(item.tokens[start + 1 : pair + 2], start, blocks, 1)
        rows = np.ascontiguousarray(states[start : pair + 1])
        drafts.append(native.draft(batch, rows, shape).tokens.tolist())
        start = pair + 1
    return drafts


def least_alike(count: int) -> float:
    """Return how many of ``count`` chains must agree: ``MIN_AGREEMENT`` of them but for chance."""
    error = math.sqrt(count * MIN_AGREEMENT * (1.0 - MIN_AGREEMENT))
    return count * MIN_AGREEMENT - CHANCE * error


def require_parity(states: StateParity, drafts: DraftParity) -> None:
    """Raise ``DrafterError`` when trainer and engine do not mean the same."""
    if states.num_different:
        raise DrafterError(
            f"parity failed: {states.num_different} of {states.num_rows} rows have other states in the "
            "engine than in the trainer; the captured data is of another target, build or instruction path: "
            "capture again (--redo capture)"
        )
    for position, (alike, count) in enumerate(zip(drafts.alike, drafts.reached, strict=True), 1):
        if count >= MIN_CHAINS and alike < least_alike(count):
            raise DrafterError(
                f"parity failed: at draft position {position} trainer and engine choose alike in "
                f"{alike / count:.1%} of {count} chains, {least_alike(count) / count:.1%} are needed: the "
                "head would not serve as it was trained"
            )
    larger = max(drafts.trainer_accepted, drafts.engine_accepted)
    difference = abs(drafts.trainer_accepted - drafts.engine_accepted)
    if larger >= MIN_CHAINS and difference > MAX_ACCEPTED_DIFFERENCE * larger:
        raise DrafterError(
            f"parity failed: of {drafts.num_chains} chains the target's replies confirm "
            f"{drafts.trainer_accepted} tokens drafted by the trainer, {drafts.engine_accepted} by the engine"
        )
