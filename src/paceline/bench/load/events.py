"""Server-sent events out of bytes as they come."""

from __future__ import annotations

import re

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")  # a last \r may be half of a \r\n


class EventReader:
    """Gives the data of each event, which is all that OpenAI's protocol uses of it.

    Lines end in any of the standard's three ways; data may be spread over several of them.
    """

    def __init__(self) -> None:
        self._waiting = b""
        self._data: list[bytes] = []

    def push(self, data: bytes) -> list[bytes]:
        """Return the data of the events that ``data`` completes."""
        *lines, self._waiting = _LINE_END.split(self._waiting + data)
        events = []
        for line in lines:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
        return events
