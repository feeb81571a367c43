"""Token trees: a draft is flat arrays, and a chain is the narrow case.

Node ``i`` holds one drafted token. ``parents[i]`` is the index of the node it follows, or ``ROOT`` when it
follows the root (the last committed token). Parents come before their children, so one pass over the arrays
visits every path from its top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ROOT = -1


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Drafted tokens and how they hang together.

    ``tokens`` and ``parents`` have one entry per node. Raises ``ValueError`` when a parent does not come
    before its child, or when two children of one node carry the same token (the second could never be
    reached by an acceptance rule).
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise ValueError(f"{len(self.tokens)} tokens but {len(self.parents)} parents")
        seen: set[tuple[int, int]] = set()
        for node, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            if not ROOT <= parent < node:
                raise ValueError(f"parent {parent} of node {node} does not come before it")
            if (parent, token) in seen:
                raise ValueError(f"node {node} repeats token {token} under parent {parent}")
            seen.add((parent, token))

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def chain(cls, tokens: Sequence[int]) -> TokenTree:
        """Return the tree in which every token follows the one before it."""
        return cls(tuple(tokens), tuple(range(-1, len(tokens) - 1)))

    @property
    def depths(self) -> tuple[int, ...]:
        """Depth of each node; children of the root have depth 1."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return tuple(depths)

    def path(self, node: int) -> tuple[int, ...]:
        """Return the node indices from the top down to ``node``, ``node`` included; empty for ``ROOT``."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = self.parents[node]
        return tuple(reversed(nodes))

    def children(self, node: int) -> tuple[int, ...]:
        """Return the children of ``node`` (or of the root) in draft order."""
        return tuple(i for i, parent in enumerate(self.parents) if parent == node)

    def is_chain(self) -> bool:
        """Return whether no node has two children."""
        return len(set(self.parents)) == len(self.parents)

    def is_gapless(self) -> bool:
        """Return whether each node follows the one before it."""
        return self.parents == tuple(range(ROOT, len(self.parents) - 1))

    def truncated(self, budget: int) -> TokenTree:
        """Return the first ``budget`` nodes (parents come first, so every path stays whole)."""
        if budget >= len(self):
            return self
        return TokenTree(self.tokens[:budget], self.parents[:budget])
