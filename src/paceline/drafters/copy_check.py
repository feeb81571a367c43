"""The start-up self-test of a draft model: does it copy a text the way its target does?

A wrong pairing (another fine-tune, damaged weights, too few layers) still gives exact output, only slowly, so
nothing else would ever tell.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.drafters.draft_sequence import DraftSequence
from paceline.executors.base import Executor
from paceline.kv.block_pool import BlockPool
from paceline.records import IntArray


class LowAcceptanceWarning(UserWarning):
    """A draft model will rarely be accepted by its target."""


@dataclass(frozen=True, slots=True)
class Room:
    """An executor and the pool its free KV blocks come from."""

    executor: Executor
    pool: BlockPool

    @property
    def num_tokens(self) -> int:
        """Longest sequence that fits now."""
        return min(self.executor.max_context, self.pool.num_free * self.executor.block_size)


def copy_agreement(target: Room, draft: Room, prompt: Sequence[int], num_rows: int) -> float:
    """Return the share of the last ``num_rows`` positions of ``prompt`` at which both argmaxes agree.

    That is the greedy acceptance on this text. Borrows KV blocks of both for the time of one forward.
    """
    shared = min(target.executor.vocab_size, draft.executor.vocab_size)
    wanted = _argmaxes(target, prompt, num_rows, shared)
    return float(np.mean(wanted == _argmaxes(draft, prompt, num_rows, shared)))


def _argmaxes(room: Room, prompt: Sequence[int], num_rows: int, vocab_size: int) -> IntArray:
    """Return the likeliest successor at each of the last ``num_rows`` positions, int32 [num_rows]."""
    sequence = DraftSequence(room.executor, room.pool)
    if not sequence.reserve(len(prompt)):
        raise ValueError(f"the KV cache has no room for {len(prompt)} tokens")
    try:
        logits = sequence.extend(prompt, num_rows)
        best: IntArray = np.argmax(logits[:, :vocab_size], axis=1).astype(np.int32)
    finally:
        sequence.release()
    return best


def warn_if_low(name: str, agreement: float, floor: float) -> None:
    """Issue a :class:`LowAcceptanceWarning` naming likely causes when ``agreement`` is under ``floor``."""
    if agreement >= floor:
        return
    warnings.warn(
        f"draft model {name!r} agrees with the target on {agreement:.0%} of a text both should copy "
        f"(floor {floor:.0%}): its drafts will rarely be accepted and may cost more than they save. Likely "
        "causes: another model family or fine-tune behind the same vocabulary; weights damaged by strong "
        "quantisation or a broken conversion; for self:N, too few layers. Output stays exact. Take a draft "
        "model of the same family, more layers, or drafter='auto'.",
        LowAcceptanceWarning,
        stacklevel=3,
    )
