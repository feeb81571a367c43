"""Requests that must end at a given time, begun or not."""

from __future__ import annotations

from paceline.engine.request import Request


class Deadlines:
    """Watches the requests whose terms have a limit; see :class:`~paceline.engine.terms.QueueTerms`."""

    def __init__(self) -> None:
        self._timed: dict[str, Request] = {}

    def watch(self, request: Request) -> None:
        """Look after ``request``, if it has a limit."""
        if request.terms.is_timed:
            self._timed[request.request_id] = request

    def forget(self, request: Request) -> None:
        """Stop looking after ``request``, if that was done."""
        self._timed.pop(request.request_id, None)

    def late(self, now: float) -> list[Request]:
        """Return the requests that are past a limit, with the reason for their end filled in."""
        late = []
        for request in self._timed.values():
            counts = request.counts
            reason = request.terms.broken(now - counts.arrived, counts.started is not None)
            if reason is not None:
                request.finish_reason, request.stop_reason = "timeout", reason
                request.text.finish()
                late.append(request)
        return late
