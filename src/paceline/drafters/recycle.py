"""Token Recycling: draft from the successors the target itself found likely (Luo et al. 2024, arXiv
2408.08696).

For each token of the vocabulary one row keeps the target's latest k most likely successors, refreshed by
every row the target verifies, rejected nodes included; nothing is trained. From the root a small tree grows
along the rows. Where the paper uses one static tree, the nodes here are chosen by estimated probability: a
success rate per rank, separate for rows whose first successor has stayed the same (a sign that the context
matters little), learned online per request. Made for CPUs, where 4 to 8 rows cost about what one costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from paceline.config import Settings, check_float, check_int
from paceline.drafters.base import DraftContext, DrafterCapabilities
from paceline.drafters.scored_tree import ConfidenceTable, ScoredTree
from paceline.records import Draft, IntArray, StepObservation
from paceline.tree import ROOT

_UNKNOWN = -1
_STEADIEST = 3
# Success of ranks 0, 1 … by how often in a row the first successor stayed the same (0 … 3).
_RANK_RATES = (
    (0.22, 0.10, 0.06, 0.035, 0.03, 0.02, 0.015, 0.01),
    (0.49, 0.08, 0.03, 0.02, 0.02, 0.02, 0.01, 0.01),
    (0.60, 0.08, 0.02, 0.02, 0.02, 0.01, 0.01, 0.01),
    (0.65, 0.06, 0.025, 0.02, 0.01, 0.01, 0.01, 0.01),
)
_NEGLIGIBLE = 0.02


@dataclass(frozen=True, slots=True)
class RecycleOptions(Settings):
    """``num_successors``: k, successors kept per token (1–8); memory is 4·k + 1 bytes per vocabulary entry.

    ``min_probability``: a node is drafted only while its whole path is at least this likely.
    """

    num_successors: int = 8
    min_probability: float = 0.08

    def __post_init__(self) -> None:
        check_int("recycle: num_successors", self.num_successors, 1, len(_RANK_RATES[0]))
        check_float("recycle: min_probability", self.min_probability, 0.0, 1.0)


class SuccessorTable:
    """The adjacency matrix, shared across requests: int32 [V, k], unknown entries -1 (V = 49,152: 1.6 MB)."""

    __slots__ = ("_steady", "successors")

    def __init__(self, vocab_size: int, num_successors: int) -> None:
        self.successors: IntArray = np.full((vocab_size, num_successors), _UNKNOWN, dtype=np.int32)
        self._steady = bytearray(vocab_size)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.successors.nbytes + len(self._steady)

    def store(self, tokens: IntArray, top_tokens: IntArray) -> None:
        """Set the rows of ``tokens`` [N] to the first k columns of ``top_tokens`` [N, ≥ k], in order."""
        steady, before = self._steady, self.successors[tokens, 0].tolist()
        for token, old, new in zip(tokens.tolist(), before, top_tokens[:, 0].tolist(), strict=True):
            steady[token] = min(steady[token] + 1, _STEADIEST) if old == new else 0
        self.successors[tokens] = top_tokens[:, : self.successors.shape[1]]

    def row(self, token: int) -> tuple[list[int], int]:
        """Return the successors of ``token``, best first (-1: unknown), and how steady the first one is."""
        successors: list[int] = self.successors[token].tolist()
        return successors, self._steady[token]


class RecycleSession:
    """Token Recycling for one request."""

    __slots__ = ("_calibration", "_grown", "_last", "_options", "_table")

    def __init__(self, options: RecycleOptions, table: SuccessorTable, last: int) -> None:
        self._options = options
        self._table = table
        self._last = last
        self._calibration = ConfidenceTable()
        self._grown = ScoredTree()

    def propose(self, budget: int) -> Draft:
        """Return the likeliest nodes whose path probability is at least ``min_probability``."""
        grown = self.grow(budget)
        return grown.draft(grown.count_above(self._options.min_probability, budget))

    def observe(self, step: StepObservation) -> None:
        """Learn how the last candidates fared and recycle what the target found likely."""
        self._grown.learn(self._calibration, step.committed)
        self._grown = ScoredTree()
        if step.committed:
            self._last = step.committed[-1]
        if step.verified_tokens is not None and step.top_tokens is not None:
            self._table.store(step.verified_tokens, step.top_tokens)

    def stop(self) -> None:
        """The table outlives the session; nothing else is held."""

    def grow(self, limit: int) -> ScoredTree:
        """Return up to ``limit`` candidates, likeliest path first."""
        tree = ScoredTree()
        self._grown = tree
        # Heap: (-path, order of arrival, raw, token, parent)
        heap: list[tuple[float, int, float, int, int]] = []
        order = self._expand(heap, 0, ROOT, self._last, 1.0)
        while heap and len(tree) < limit:
            path, _, raw, token, parent = heappop(heap)
            node = tree.add(token, parent, raw, -path)
            order = self._expand(heap, order, node, token, -path)
        return tree

    def _expand(
        self, heap: list[tuple[float, int, float, int, int]], order: int, node: int, token: int, path: float
    ) -> int:
        """Push the likely successors of ``token``, which ``node`` holds; return the next order of arrival."""
        if path < _NEGLIGIBLE / _RANK_RATES[_STEADIEST][0]:
            return order
        successors, steady = self._table.row(token)
        for raw, successor in zip(_RANK_RATES[steady], successors, strict=False):
            likely = path * self._calibration.estimate(raw)
            if likely < _NEGLIGIBLE or successor == _UNKNOWN:
                break
            heappush(heap, (-likely, order, raw, successor, node))
            order += 1
        return order


class RecycleDrafter:
    """Opens :class:`RecycleSession` objects that share one successor table."""

    def __init__(self, vocab_size: int, options: RecycleOptions | None = None) -> None:
        self.options = options or RecycleOptions()
        self.table = SuccessorTable(vocab_size, self.options.num_successors)

    @property
    def name(self) -> str:
        return "recycle"

    @property
    def capabilities(self) -> DrafterCapabilities:
        return DrafterCapabilities(can_branch=True, num_top_tokens=self.options.num_successors)

    def start(self, context: DraftContext) -> RecycleSession:
        """Open a session at the last prompt token."""
        return RecycleSession(self.options, self.table, context.prompt_token_ids[-1])
