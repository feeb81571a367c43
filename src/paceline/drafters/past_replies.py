"""What earlier requests were answered, for the suffix drafter."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from paceline.drafters.suffix_index import SuffixIndex

_AT_ONCE = 256
"""Tokens indexed in a step, and what is left of a reply: about 3 ms."""
_NODES_PER_TOKEN = 4


class PastReplies:
    """Replies of finished requests in two generations of at most ``max_nodes / 2`` nodes and one reply each.

    When the younger is full it becomes the older and the older is dropped, so memory is bounded and what was
    said lately stays known. Replies wait until somebody drafts: in a full batch nobody may for long.
    """

    def __init__(self, max_nodes: int, max_depth: int) -> None:
        self._max_nodes = max_nodes
        self._max_depth = max_depth
        self._waiting: deque[Sequence[int]] = deque()
        self._num_waiting = 0
        self.generations: tuple[SuffixIndex, ...] = ()
        self.num_added = 0

    def add(self, reply: Sequence[int]) -> None:
        """Keep one reply, the last tokens of its prompt included; the oldest that wait make room."""
        if self._max_nodes == 0 or not reply:
            return
        self._waiting.append(reply)
        self._num_waiting += len(reply)
        while self._num_waiting > self._max_nodes // _NODES_PER_TOKEN and len(self._waiting) > 1:
            self._num_waiting -= len(self._waiting.popleft())

    def take_in(self) -> None:
        """Index what waits, the oldest first, no more at once than a step has time for."""
        taken = 0
        while self._waiting and taken < _AT_ONCE:
            reply = self._waiting.popleft()
            taken += len(reply)
            self._index(reply)
        self._num_waiting -= taken

    def _index(self, reply: Sequence[int]) -> None:
        if not self.generations or 2 * _nodes_worth(self.generations[0]) >= self._max_nodes:
            self.generations = (SuffixIndex(self._max_depth), *self.generations[:1])
        self.generations[0].extend(reply)
        self.generations[0].end_sequence()
        self.num_added += 1


def _nodes_worth(index: SuffixIndex) -> int:
    """Return the nodes that ``index`` has, or as many as its text is worth: what is said again and again adds
    text and no nodes. A token of text has 8 bytes, a node 260.
    """
    return max(index.num_nodes, len(index.text) // 32)
