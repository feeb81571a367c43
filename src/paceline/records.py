"""Records that cross seams. All frozen; every count is defined here, once (design.md, glossary)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from paceline.tree import TokenTree

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]
Origin = Literal["accepted", "recovered", "bonus"]
FinishReason = Literal["stop", "length", "abort", "timeout"]


@dataclass(frozen=True, slots=True)
class TokenLaw:
    """A probability law over token ids, kept on its support.

    ``ids`` int32 [S], strictly ascending; ``probs`` float64 [S], positive, summing to one. Ids that a filter
    removed do not appear.
    """

    ids: IntArray
    probs: npt.NDArray[np.float64]

    def prob(self, token: int) -> float:
        """Return the probability of ``token`` (0.0 outside the support)."""
        # A needle of the ids' own type: for any other, numpy first converts all of them.
        index = int(np.searchsorted(self.ids, np.int32(token)))
        if index < len(self.ids) and int(self.ids[index]) == token:
            return float(self.probs[index])
        return 0.0


@dataclass(frozen=True, slots=True)
class Draft:
    """What a drafter proposes: a token tree and the law its tokens were drawn from.

    ``laws`` is ``None`` for a *certain* draft (each token stands for the point mass on itself). For a
    *sampled* draft it has one entry per node: the very law, after the request's own processors and filters,
    that the node's token was drawn from. A sampled draft is a chain.
    """

    tree: TokenTree = field(default_factory=TokenTree)
    laws: tuple[TokenLaw, ...] | None = None

    def __post_init__(self) -> None:
        if self.laws is not None and len(self.laws) != len(self.tree):
            raise ValueError(f"{len(self.tree)} drafted tokens but {len(self.laws)} laws")
        if self.laws is not None and not self.tree.is_chain():
            raise ValueError("a sampled draft must be a chain")

    def __len__(self) -> int:
        return len(self.tree)

    @classmethod
    def chain(cls, tokens: Sequence[int], laws: Sequence[TokenLaw] | None = None) -> Draft:
        """Return a chain draft, certain unless ``laws`` are given."""
        return cls(TokenTree.chain(tokens), None if laws is None else tuple(laws))


EMPTY_DRAFT = Draft()


@dataclass(frozen=True, slots=True)
class Surcharge:
    """What drafts cost beyond the cost table, as heard by the clock (``control/draft_clock``).

    A draft that costs x by the table costs ``asking + factor * x``, in one-row forwards, and ``first`` more
    where no draft was before it, the plain step behind it included.
    """

    asking: float = 0.0
    factor: float = 1.0
    first: float = 0.0

    def on(self, cost: float) -> float:
        """Return the whole cost of what costs ``cost`` by the table; nothing for nothing."""
        return self.asking + self.factor * cost if cost else 0.0


NO_SURCHARGE = Surcharge()


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """The forward that a draft would join.

    ``num_rows``: its rows so far: pending tokens of all requests (this one's root included) and the drafts
    made before this one. ``num_requests``: that are in it, this one included; whether they choose a token or
    read a prompt, a draft makes them wait.
    ``surcharge``: what drafts cost of late beyond the table.
    """

    num_rows: int = 1
    num_requests: int = 1
    surcharge: Surcharge = NO_SURCHARGE


ALONE = BatchLoad()


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """The target's hidden states of positions ``start`` … ``start + N - 1`` of one request.

    ``rows`` float32 [N, W], the observer's to keep: per position the states of the layers its drafter asked
    for, side by side. Only tokens that are computed and committed have any.
    """

    start: int
    rows: FloatArray

    def __post_init__(self) -> None:
        if self.start < 0 or self.rows.ndim != 2:
            raise ValueError(f"states from {self.start} on of shape {self.rows.shape}, not [N, W] from 0 up")

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class StepObservation:
    """What happened to a request in one step, told to its drafter after commit.

    ``committed``: tokens appended in this step, in order. ``num_accepted_tokens``: how many of the leading
    ones came from the draft. ``verified_tokens`` int32 [N] and ``top_tokens`` int32 [N, k]: every row the
    target computed logits for (the root first, then the draft's nodes in order) with the target's k most
    likely successors, best first; ``top_tokens`` is ``None`` unless the drafter's capabilities ask for it.
    ``states``: hidden states of the committed tokens that this step computed, ``None`` unless asked for. They
    follow each other; but tokens that the prefix cache had are not computed, so the first ones may begin
    behind position 0 and later ones behind a gap, and after a preemption they begin at an earlier position
    again.
    """

    committed: tuple[int, ...]
    num_accepted_tokens: int
    draft: Draft = EMPTY_DRAFT
    verified_tokens: IntArray | None = None
    top_tokens: IntArray | None = None
    states: HiddenStates | None = None
