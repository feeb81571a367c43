"""The connection of a streamed answer, for pieces that leave on the engine's thread.

Waking the event loop and waiting for it costs a streamed piece as much as writing it, on cores that the next
forward wants (docs/adr/0015). So the engine's thread writes to the socket itself, as long as it takes all;
headers, what a slow client leaves over, and the end of the body are the event loop's.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

TRANSPORT = "transport"
"""Where :class:`LineProtocol` leaves the connection, in a request's ``state``."""
CHUNKED = (b"transfer-encoding", b"chunked")
"""The header of bodies that a line writes."""


class LineProtocol(HttpToolsProtocol):
    """uvicorn's protocol; its requests know their connection."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"][TRANSPORT] = self.transport


class Line:
    """Writes a chunked body (RFC 9112, 7.1) from any thread. While it may, nothing else writes to the
    transport: the event loop asks :attr:`is_clear` before it lets another thread begin, and calls
    :meth:`finish` before it writes again.
    """

    def __init__(self, transport: asyncio.WriteTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        found = transport.get_extra_info("socket")
        # One of our own: a number that the transport has closed may soon be somebody else's connection.
        self._socket: socket.socket | None = socket.fromfd(found.fileno(), found.family, found.type)
        self._socket.setblocking(False)
        self._lock = threading.Lock()
        self._rest = b""

    @classmethod
    def of(cls, state: dict[str, Any]) -> Line | None:
        """Return the line of a request; ``None`` behind TLS, and in servers that do not tell. On the loop."""
        transport = state.get(TRANSPORT)
        if transport is None or transport.is_closing() or transport.get_extra_info("sslcontext") is not None:
            return None
        try:
            return cls(transport, asyncio.get_running_loop())
        except OSError:  # no descriptor is left
            return None

    @property
    def is_clear(self) -> bool:
        """Whether all that was written has left. For the event loop."""
        return not (self._rest or self._transport.is_closing() or self._transport.get_write_buffer_size())

    def write(self, data: bytes) -> bool:
        """Send a piece without waiting; return whether another may follow before :meth:`finish`, which the
        event loop is asked for then. What goes wrong is left for the transport to meet.
        """
        chunk = b"%x\r\n%b\r\n" % (len(data), data)
        with self._lock:
            if self._socket is None or self._transport.is_closing():
                return False
            try:
                sent = self._socket.send(chunk)
            except OSError:
                sent = 0
            rest = self._rest = chunk[sent:]
        if rest:  # the client should not wait for half a piece until there is another one
            self._loop.call_soon_threadsafe(self.finish)
            return False
        return True

    def finish(self) -> None:
        """Leave what is left over to the transport. On the event loop."""
        with self._lock:
            rest, self._rest = self._rest, b""
        if rest and not self._transport.is_closing():
            self._transport.write(rest)

    def close(self) -> None:
        """Let go of the connection, which the transport keeps; :meth:`write` sends nothing any more."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
            self._socket = None
