"""Requests that wait: better priorities first, and within one priority the clients in turns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from paceline.engine.request import Request


class _Level:
    """Waiting requests of one priority. ``back``: those that were preempted; they had their turn before."""

    __slots__ = ("back", "clients")

    def __init__(self) -> None:
        self.back: dict[int, Request] = {}
        self.clients: OrderedDict[str, dict[int, Request]] = OrderedDict()  # whose turn it is comes first

    def __len__(self) -> int:
        return len(self.back) + sum(map(len, self.clients.values()))

    def first(self) -> Request:
        """Return the request whose turn it is."""
        if self.back:
            return self.back[min(self.back)]
        return next(iter(next(iter(self.clients.values())).values()))


class WaitingQueue:
    """Strict between priorities (lower numbers first); round robin among the clients of one; then by arrival.

    One client's thousand requests therefore cost another client one turn. Preempted requests come before new
    ones of their priority, in order of arrival.
    """

    def __init__(self) -> None:
        self._levels: dict[int, _Level] = {}
        self._num_new = 0

    @property
    def num_new(self) -> int:
        """Requests that have not run yet."""
        return self._num_new

    def __len__(self) -> int:
        return sum(map(len, self._levels.values()))

    def __iter__(self) -> Iterator[Request]:
        """Yield all, in no promised order."""
        for level in self._levels.values():
            yield from level.back.values()
            for queue in level.clients.values():
                yield from queue.values()

    def add(self, request: Request) -> None:
        """Add a new request behind those of its client."""
        level = self._levels.setdefault(request.terms.priority, _Level())
        level.clients.setdefault(request.terms.client, {})[request.number] = request
        self._num_new += 1

    def put_back(self, request: Request) -> None:
        """Add a request that was preempted."""
        self._levels.setdefault(request.terms.priority, _Level()).back[request.number] = request

    def first(self) -> Request | None:
        """Return the request whose turn it is, ``None`` when none waits."""
        return self._levels[min(self._levels)].first() if self._levels else None

    def start(self, request: Request) -> None:
        """Take ``request`` out because it runs now: its client's next turn comes after the others'."""
        client, level = request.terms.client, self._levels[request.terms.priority]
        if request.number not in level.back:
            level.clients.move_to_end(client)
        self.remove(request)

    def remove(self, request: Request) -> None:
        """Take ``request`` out. Raises ``KeyError`` when it does not wait."""
        client, level = request.terms.client, self._levels[request.terms.priority]
        if level.back.pop(request.number, None) is None:
            queue = level.clients[client]
            del queue[request.number]
            self._num_new -= 1
            if not queue:
                del level.clients[client]
        if not level.back and not level.clients:
            del self._levels[request.terms.priority]
