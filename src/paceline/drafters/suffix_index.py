"""A counting suffix tree of bounded depth, built token by token.

Every run of up to ``max_depth`` tokens of the text is a path from the top, and each node counts how often its
path occurred. The part of a path that occurred only once is not stored: its node remembers where in the text
it goes on (``tails``) and grows its first child when a second occurrence comes by. So an ordinary text costs
two to six nodes per token (260 bytes each) however large ``max_depth`` is, and adding a token touches one
node per length in which the text's end has occurred before.

A *place* is where a path leads: a node (``>= 0``), or a position of the text seen once, written
``~position``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

TOP = 0
NOWHERE = -(1 << 62)
_END = -1  # closes a sequence in the text; no path crosses it


class SuffixIndex:
    """Counts of all runs of up to ``max_depth`` tokens in the sequences added so far.

    ``text``: the tokens, each closed sequence followed by -1. ``active[k]``: node of the last k tokens of the
    open sequence, for every k < max_depth for which they have occurred before; ``active[0]`` is the top.
    """

    __slots__ = ("active", "children", "counts", "max_depth", "tails", "text")

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        self.text: list[int] = []
        self.counts = array("l", [0])
        self.tails = array("l", [0])
        self.children: list[dict[int, int] | None] = [{}]
        self.active: list[int] = [TOP]

    @property
    def num_nodes(self) -> int:
        """Nodes stored, the top included: the measure of memory."""
        return len(self.counts)

    @property
    def match_length(self) -> int:
        """Longest run (below ``max_depth``) that ends the open sequence and has occurred before."""
        return len(self.active) - 1

    def extend(self, tokens: Iterable[int]) -> None:
        """Append ``tokens`` to the open sequence."""
        for token in tokens:
            self._append(token)

    def end_sequence(self) -> None:
        """Close the open sequence: nothing that follows continues it."""
        self.text.append(_END)
        self.active = [TOP]

    def _append(self, token: int) -> None:
        counts, tails, children = self.counts, self.tails, self.children
        after = len(self.text) + 1
        self.text.append(token)
        active = [TOP]
        counts[TOP] += 1
        for node in self.active:
            below = children[node]
            if below is None:
                below = self._open(node)
            child = below.get(token)
            if child is None:
                below[token] = len(counts)
                counts.append(1)
                tails.append(after)
                children.append(None)
            else:
                counts[child] += 1
                active.append(child)
        if len(active) > self.max_depth:
            # The deepest nodes never open: they point at their newest occurrence instead.
            tails[active.pop()] = after
        self.active = active

    def _open(self, node: int) -> dict[int, int]:
        """Store the first child of a node that is passed for the second time."""
        below: dict[int, int] = {}
        self.children[node] = below
        position = self.tails[node]
        first = self.text[position]
        if first != _END:
            below[first] = len(self.counts)
            self.counts.append(1)
            self.tails.append(position + 1)
            self.children.append(None)
        return below

    def find(self, run: Sequence[int]) -> int:
        """Return the place of ``run`` (at most ``max_depth`` tokens), or ``NOWHERE``."""
        place = TOP
        for token in run:
            place = self.step(place, token)
            if place == NOWHERE:
                return NOWHERE
        return place

    def step(self, place: int, token: int) -> int:
        """Return the place one ``token`` below ``place``, or ``NOWHERE``."""
        if place >= 0:
            below = self.children[place]
            if below is not None:
                return below.get(token, NOWHERE)
            place = ~self.tails[place]
        position = ~place
        if position < len(self.text) and self.text[position] == token:
            return ~(position + 1)
        return NOWHERE
