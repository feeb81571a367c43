"""Batches of captured sequences, packed row after row without padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paceline.train.captured import CapturedSequence

MIN_REPLY_TOKENS = 2
"""A sequence holds one chain less than its reply has tokens: the law after the last is never asked for."""


class Captured(Protocol):
    """Captured sequences by index."""

    def __len__(self) -> int: ...

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each sequence."""
        ...

    @property
    def response_starts(self) -> npt.NDArray[np.int64]: ...

    def sequence(self, index: int) -> CapturedSequence: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """Packed sequences; see ``ttt`` for what a chain is.

    Pairs (T rows, sequence after sequence): ``states`` bf16 [T, k * Ht] of token i, ``embedded`` bf16 [T, H]
    of token i + 1, ``positions`` int64 [T] = i; ``sequence_starts``: first row of each sequence. Chains (C
    rows, in order): ``chain_positions`` int64 [C]: the row where each starts; ``chain_sequences``;
    ``chain_room``: draft steps that have a target. ``target_states`` bf16 [C, Ht]: outputs of the target's
    last layer after each reply token but the last, so that row c is the first target of chain c and row
    c + m - 1 that of its step m.
    """

    states: Tensor
    embedded: Tensor
    positions: Tensor
    sequence_starts: tuple[int, ...]
    chain_positions: Tensor
    chain_sequences: Tensor
    chain_room: Tensor
    target_states: Tensor

    @property
    def num_sequences(self) -> int:
        return len(self.sequence_starts)

    @property
    def pair_counts(self) -> list[int]:
        """Pairs of each sequence."""
        return np.diff((*self.sequence_starts, len(self.positions))).tolist()

    @property
    def pair_sequences(self) -> Tensor:
        """The sequence of each pair, int64 [T]."""
        return torch.repeat_interleave(torch.arange(self.num_sequences), torch.tensor(self.pair_counts))

    @property
    def num_chains(self) -> int:
        return len(self.chain_positions)


def make_batch(sequences: Sequence[CapturedSequence], embedding: Tensor, target_width: int) -> Batch:
    """Pack ``sequences``; each has at least ``MIN_REPLY_TOKENS`` reply tokens.

    ``embedding`` [V, H]: the target's, in the dtype to compute in. ``target_width``: Ht.
    """
    tokens, pairs_of, firsts = [], [], []
    states, targets = [], []
    for item in sequences:
        pairs, first = len(item.tokens) - 2, item.response_start
        bits = torch.from_numpy(np.ascontiguousarray(item.states)).view(torch.bfloat16)
        states.append(bits[:pairs, :-target_width])
        targets.append(bits[first : pairs + 1, -target_width:])
        tokens.append(torch.from_numpy(item.tokens[1 : pairs + 1].astype(np.int64)))
        pairs_of.append(pairs)
        firsts.append(first)
    starts = np.concatenate(([0], np.cumsum(pairs_of)[:-1])).tolist()
    chains = [torch.arange(first - 1, pairs) for first, pairs in zip(firsts, pairs_of, strict=True)]
    counts = [len(part) for part in chains]
    # The chain at i has its first target after token i + 1 and target rows start at the reply: one per chain,
    # so chains and target rows share their numbers.
    return Batch(
        states=torch.cat(states).to(embedding.dtype),
        embedded=embedding[torch.cat(tokens)],
        positions=torch.cat([torch.arange(pairs) for pairs in pairs_of]),
        sequence_starts=tuple(starts),
        chain_positions=torch.cat([part + start for part, start in zip(chains, starts, strict=True)]),
        chain_sequences=torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)),
        chain_room=torch.cat([pairs - part for part, pairs in zip(chains, pairs_of, strict=True)]),
        target_states=torch.cat(targets),
    )


def batch_order(
    num_chains: Sequence[int], tokens_per_step: int, seed: tuple[int, int] | None
) -> Iterator[list[int]]:
    """Yield lists of sequence indices with about ``tokens_per_step`` chains each, all sequences once.

    ``seed``: (seed, epoch), which alone decide the order, so that a resumed run sees what an uninterrupted
    one would; ``None``: as they come.
    """
    order = range(len(num_chains))
    if seed is not None:
        order = np.random.default_rng(seed).permutation(len(num_chains)).tolist()
    batch: list[int] = []
    held = 0
    for index in order:
        batch.append(index)
        held += num_chains[index]
        if held >= tokens_per_step:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
