"""HTTP/1.1 to servers of this machine, with little work for each piece of a stream.

What the client does here it takes from the server it measures: with both on two cores, a general HTTP stack
costs a streamed token a quarter of a millisecond, this a fifth of that. Each request has a connection of its
own. Servers elsewhere, or behind TLS, are spoken to by httpx2's own transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2

_READ_BYTES = 1 << 16
_HEAD_BYTES = 1 << 16
_LINE_END = b"\r\n"
_NO_BODY = frozenset({204, 304})


class LocalTransport(httpx2.AsyncBaseTransport):
    """Takes requests whose body is known. The ``read`` timeout of a request bounds the wait for its answer's
    head; the caller bounds the rest.
    """

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; return the answer as soon as its head is there. Raises httpx2's errors."""
        limits = request.extensions.get("timeout", {})
        reader, writer = await _connect(request, limits.get("connect"))
        try:
            writer.write(_head_of(request) + request.content)
            async with asyncio.timeout(limits.get("read")):
                status, headers = _parse_head(await reader.readuntil(_LINE_END * 2))
            return httpx2.Response(status, headers=headers, stream=_Body(reader, writer, status, headers))
        except BaseException as error:
            writer.close()
            if isinstance(error, TimeoutError):
                raise httpx2.ReadTimeout("no answer in time", request=request) from error
            if isinstance(error, OSError):
                raise httpx2.ReadError(str(error), request=request) from error
            if isinstance(error, asyncio.IncompleteReadError | asyncio.LimitOverrunError | ValueError):
                raise httpx2.RemoteProtocolError(_no_head(error), request=request) from error
            raise


async def _connect(
    request: httpx2.Request, limit: float | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = request.url.host, request.url.port or 80
    try:
        async with asyncio.timeout(limit):
            return await asyncio.open_connection(host, port, limit=_HEAD_BYTES)
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
    first, *lines = head[: -len(_LINE_END * 2)].split(_LINE_END)
    version, status, *_ = first.split(b" ", 2)
    if not version.startswith(b"HTTP/1."):
        raise ValueError(f"{first[:40]!r} is no status line")
    pairs = [line.split(b":", 1) for line in lines]
    return int(status), httpx2.Headers([(name.strip(), value.strip()) for name, value in pairs])


def _no_head(error: BaseException) -> str:
    if isinstance(error, asyncio.IncompleteReadError):
        return "it hung up before it answered"
    return f"it does not speak HTTP/1.1: {error}"


class _Body(httpx2.AsyncByteStream):
    """The bytes of an answer as they come, without their framing."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        status: int,
        headers: httpx2.Headers,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        length = headers.get("content-length")
        self._length = 0 if status in _NO_BODY else None if length is None else int(length)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = self._chunks() if self._is_chunked else self._plain()
        try:
            async for piece in pieces:
                yield piece
        except OSError as error:
            raise httpx2.ReadError(str(error)) from error

    async def _plain(self) -> AsyncIterator[bytes]:
        left = self._length
        while left is None or left > 0:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                if left is None:
                    return
                raise httpx2.RemoteProtocolError(f"it hung up {left} bytes before the end")
            yield data
            left = None if left is None else left - len(data)

    async def _chunks(self) -> AsyncIterator[bytes]:
        chunks = ChunkReader()
        while not chunks.is_done:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise httpx2.RemoteProtocolError("it hung up in the middle of its answer")
            if piece := chunks.push(data):
                yield piece

    async def aclose(self) -> None:
        self._writer.close()


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
