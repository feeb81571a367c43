"""HTTP/1.1 to servers of this machine, with little work for each piece of a stream.

What the client does here it takes from the server it measures: with both on two cores, a general HTTP stack
costs a streamed token a quarter of a millisecond. Here a piece is noted with its time and nothing else; the
task that waits for the reply is woken when the reply may be over. Each request has a connection of its own.
Servers elsewhere, or behind TLS, are spoken to by httpx2's own transport.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, cast

import httpx2

COLLECT = "collect"
"""Name of the response extension that holds a :data:`Collect`; only answers in chunks have it."""
_HEAD_BYTES = 1 << 16
_LINE_END = b"\r\n"
_NO_BODY = frozenset({204, 304})

Arrival = tuple[float, bytes]
"""Seconds of the process clock, and what came then."""
Collect = Callable[[list[Arrival]], Awaitable[None]]
"""Waits for the end of the body and appends its pieces; those that came before it broke, too."""


class LocalTransport(httpx2.AsyncBaseTransport):
    """Takes requests whose body is known. The ``read`` timeout of a request bounds the wait for its answer's
    head; the caller bounds the rest.
    """

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; return the answer as soon as its head is there. Raises httpx2's errors."""
        limits = request.extensions.get("timeout", {})
        connection = await _connect(request, limits.get("connect"))
        try:
            connection.send(_head_of(request) + request.content)
            async with asyncio.timeout(limits.get("read")):
                status, headers = _parse_head(await connection.head())
            body = _Body(connection, _framing_of(status, headers))
            extensions = {COLLECT: body.collect} if isinstance(body.framing, ChunkReader) else {}
            return httpx2.Response(status, headers=headers, stream=body, extensions=extensions)
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError):
                raise httpx2.ReadTimeout("no answer in time", request=request) from error
            if isinstance(error, OSError):
                raise httpx2.ReadError(str(error), request=request) from error
            if isinstance(error, ValueError):
                raise httpx2.RemoteProtocolError(str(error), request=request) from error
            raise


class _Connection(asyncio.Protocol):
    """Notes what comes, and when."""

    def __init__(self) -> None:
        self.is_lost = False
        self.error: Exception | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._arrived: list[Arrival] = []
        self._waiter: asyncio.Future[None] | None = None
        self._is_patient = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        self._arrived.append((time.perf_counter(), data))
        # The last chunk of a body ends in two line ends; the fewer bytes have come, the less they tell.
        if not self._is_patient or len(data) < 4 or data.endswith(_LINE_END * 2):
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost, self.error = True, exc
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def take(self) -> list[Arrival]:
        """Return what has come since the last time."""
        arrived, self._arrived = self._arrived, []
        return arrived

    async def wait(self, patient: bool) -> None:
        """Wait until something has come; ``patient``: until a body in chunks may be over."""
        self._is_patient = patient
        self._waiter = asyncio.get_running_loop().create_future()
        if not self.is_lost:
            await self._waiter

    async def head(self) -> bytes:
        """Return the answer's head. Raises ``ValueError``, and ``OSError`` for a broken connection."""
        data = b""
        while True:
            for at, piece in self.take():
                data += piece
                head, found, rest = data.partition(_LINE_END * 2)
                if found:
                    self._arrived = [(at, rest), *self._arrived] if rest else self._arrived
                    return head
            if len(data) > _HEAD_BYTES:
                raise ValueError("it does not speak HTTP/1.1: its head has no end")
            if self.is_lost:
                raise self.error or ValueError("it hung up before it answered")
            await self.wait(patient=False)


async def _connect(request: httpx2.Request, limit: float | None) -> _Connection:
    host, port = request.url.host, request.url.port or 80
    try:
        async with asyncio.timeout(limit):
            loop = asyncio.get_running_loop()
            return (await loop.create_connection(_Connection, host, port))[1]
    except TimeoutError as error:
        raise httpx2.ConnectTimeout(f"{host}:{port} does not answer", request=request) from error
    except OSError as error:
        raise httpx2.ConnectError(str(error), request=request) from error


def _head_of(request: httpx2.Request) -> bytes:
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"connection"]
    lines = [
        request.method.encode() + b" " + request.url.raw_path + b" HTTP/1.1",
        *(name + b": " + value for name, value in headers),
        b"Connection: close",
    ]
    return _LINE_END.join(lines) + _LINE_END * 2


def _parse_head(head: bytes) -> tuple[int, httpx2.Headers]:
    """Return status and headers. Raises ``ValueError`` for what is no head of HTTP/1."""
    first, *lines = head.split(_LINE_END)
    version, _, rest = first.partition(b" ")
    status = rest.partition(b" ")[0]
    pairs = [line.split(b":", 1) for line in lines]
    if not (version.startswith(b"HTTP/1.") and status.isdigit() and all(len(pair) == 2 for pair in pairs)):
        raise ValueError(f"it does not speak HTTP/1.1: {head[:80]!r}")
    return int(status), httpx2.Headers([(name.strip(), value.strip()) for name, value in pairs])


class _Framing(Protocol):
    """Takes the framing off a body. ``is_done``: nothing more belongs to it."""

    is_done: bool

    def push(self, data: bytes) -> bytes:
        """Return the content that is whole with ``data``. Raises ``RemoteProtocolError``."""

    def hang_up(self) -> None:
        """Raise ``RemoteProtocolError`` where the end of the connection is not the end of the body."""


class _Counted:
    """A body of ``length`` bytes; ``None``: as many as come."""

    def __init__(self, length: int | None) -> None:
        self._left = length
        self.is_done = length == 0

    def push(self, data: bytes) -> bytes:
        if self._left is not None:
            self._left -= len(data)
            self.is_done = self._left <= 0
        return data

    def hang_up(self) -> None:
        if self._left is not None:
            raise httpx2.RemoteProtocolError(f"it hung up {self._left} bytes before the end")


class ChunkReader:
    """Takes the framing off a chunked body (RFC 9112, 7.1). ``is_done``: its last chunk has come."""

    def __init__(self) -> None:
        self.is_done = False
        self._waiting = b""

    def push(self, data: bytes) -> bytes:
        """Return the content that came with ``data``; parts of chunks wait until they are whole.

        Raises ``RemoteProtocolError`` where a chunk's size should stand and does not.
        """
        data = self._waiting + data
        pieces, at = [], 0
        while not self.is_done:
            line = data.find(_LINE_END, at)
            if line < 0:
                break
            try:
                size = int(data[at:line].partition(b";")[0], 16)
            except ValueError:
                raise httpx2.RemoteProtocolError(f"{data[at:line][:40]!r} is no size of a chunk") from None
            start = line + len(_LINE_END)
            if size == 0:  # trailers, if any, tell nothing that is needed
                self.is_done = True
            elif len(data) < start + size + len(_LINE_END):
                break
            else:
                pieces.append(data[start : start + size])
                at = start + size + len(_LINE_END)
        self._waiting = data[at:]
        return b"".join(pieces)

    def hang_up(self) -> None:
        raise httpx2.RemoteProtocolError("it hung up in the middle of its answer")


def _framing_of(status: int, headers: httpx2.Headers) -> _Framing:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return ChunkReader()
    length = headers.get("content-length")
    return _Counted(0 if status in _NO_BODY else None if length is None else int(length))


class _Body(httpx2.AsyncByteStream):
    """The bytes of an answer without their framing: as they come, or all at the end with their times."""

    def __init__(self, connection: _Connection, framing: _Framing) -> None:
        self.framing = framing
        self._connection = connection

    async def _pieces(self, patient: bool) -> AsyncIterator[Arrival]:
        while not self.framing.is_done:
            for at, data in self._connection.take():
                if piece := self.framing.push(data):
                    yield at, piece
            if self.framing.is_done:
                return
            if self._connection.is_lost:
                if self._connection.error is not None:
                    raise httpx2.ReadError(str(self._connection.error)) from self._connection.error
                self.framing.hang_up()
                return
            await self._connection.wait(patient)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for _, piece in self._pieces(patient=False):
            yield piece

    async def collect(self, arrived: list[Arrival]) -> None:
        """See :data:`Collect`."""
        async for arrival in self._pieces(patient=True):
            arrived.append(arrival)  # noqa: PERF401 (a failure would take all along)

    async def aclose(self) -> None:
        self._connection.close()
