"""The wire of the load client: answers may be cut anywhere, and a bad one is an error of httpx2's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx2
import pytest

from paceline.bench.load.endpoint import make_client, parse_endpoint
from paceline.bench.load.events import EventReader
from paceline.bench.load.local import ChunkReader, LocalTransport

CHUNKED = b"5;name=value\r\nhello\r\n1\r\n \r\nA\r\nworld\r\n!!!\r\n0\r\nTrailer: yes\r\n\r\n"
EVENTS = b': a comment\n\ndata: {"a":1}\r\n\r\ndata:two\rdata: lines\r\revent: x\nid: 3\ndata: [DONE]\n\n'


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(CHUNKED)])
def test_chunks_may_come_in_any_pieces(size: int) -> None:
    reader = ChunkReader()
    pieces = [reader.push(CHUNKED[at : at + size]) for at in range(0, len(CHUNKED), size)]
    assert (b"".join(pieces), reader.is_done) == (b"hello world\r\n!!!", True)


def test_what_is_no_chunk_is_refused() -> None:
    with pytest.raises(httpx2.RemoteProtocolError, match="no size of a chunk"):
        ChunkReader().push(b"five\r\nhello\r\n")


@pytest.mark.parametrize("size", [1, 2, 5, len(EVENTS)])
def test_events_may_come_in_any_pieces_and_end_lines_in_any_way(size: int) -> None:
    reader = EventReader()
    found = [event for at in range(0, len(EVENTS), size) for event in reader.push(EVENTS[at : at + size])]
    assert found == [b'{"a":1}', b"two\nlines", b"[DONE]"]


def test_an_event_comes_with_the_bytes_that_end_it() -> None:
    """Gaps are timed by it: an event must not wait for the next one."""
    reader = EventReader()
    assert reader.push(b"data: 1\n") == []
    assert reader.push(b"\n") == [b"1"]
    assert reader.push(b"data: 2\r\n\r\n") == [b"2"]


@asynccontextmanager
async def answering(answer: Sequence[bytes], hang_up: bool = True) -> AsyncIterator[str]:
    """A server that sends ``answer`` piece by piece to whoever asks; yields its address."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for piece in answer:
                writer.write(piece)
                await asyncio.sleep(0)
            if not hang_up:
                await over.wait()
        finally:
            writer.close()

    over = asyncio.Event()
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        over.set()
        server.close()
        await asyncio.sleep(0.01)  # for the connections to close


async def _ask(answer: Sequence[bytes], hang_up: bool = True) -> httpx2.Response:
    async with (
        answering(answer, hang_up) as url,
        httpx2.AsyncClient(transport=LocalTransport(), timeout=0.2) as client,
    ):
        return await client.get(url)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"hello"),
        (b"HTTP/1.0 200 OK\r\n\r\n", b"hello"),
    ],
)
def test_bodies_of_every_framing_are_read(head: bytes, body: bytes) -> None:
    answer = asyncio.run(_ask([head, body[:3], body[3:]]))
    assert (answer.status_code, answer.content) == (200, b"hello")


def test_a_framed_body_does_not_wait_for_the_connection_to_end() -> None:
    answer = asyncio.run(_ask([b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"], hang_up=False))
    assert (answer.status_code, answer.text) == (404, "no")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ([], httpx2.RemoteProtocolError),
        ([b"SSH-2.0-OpenSSH_9.2\r\n\r\n"], httpx2.RemoteProtocolError),
        ([b"HTTP/1.1 OK\r\n\r\n"], httpx2.RemoteProtocolError),
        ([b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"], httpx2.RemoteProtocolError),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"hel"], httpx2.RemoteProtocolError),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\nhel"], httpx2.RemoteProtocolError),
    ],
)
def test_bad_answers_are_errors_of_the_protocol(answer: list[bytes], error: type[Exception]) -> None:
    with pytest.raises(error):
        asyncio.run(_ask(answer))


def test_a_silent_server_is_a_timeout() -> None:
    with pytest.raises(httpx2.ReadTimeout):
        asyncio.run(_ask([b"HTTP/1.1 200 OK\r\n"], hang_up=False))


def test_only_servers_of_this_machine_are_spoken_to_without_httpx() -> None:
    def transport_for(address: str) -> object:
        client = make_client(parse_endpoint(address), None, 1.0)
        return client._transport_for_url(httpx2.URL(address))

    assert isinstance(transport_for("http://127.0.0.1:8000"), LocalTransport)
    assert not isinstance(transport_for("https://127.0.0.1:8000"), LocalTransport)
    assert not isinstance(transport_for("http://192.0.2.1:8000"), LocalTransport)
