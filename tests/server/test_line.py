"""What the engine's thread writes to a connection arrives whole and in order with what the event loop writes,
whether the client keeps up, lags, or has gone.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop
from starlette.types import Message

from paceline.bench.load.local import ChunkReader
from paceline.engine.outputs import CompletionOutput, RequestMetrics, StepOutput
from paceline.sampling.params import SamplingParams
from paceline.server.errors import ApiError
from paceline.server.job import Job, Part
from paceline.server.line import TRANSPORT, Line
from paceline.server.watch import EventStream

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
PIECES = [bytes([97 + number % 26]) * (1 + number * 977 % 5000) for number in range(400)]


class Accepting(asyncio.Protocol):
    """The server's side of one connection."""

    def __init__(self) -> None:
        self.may_write = asyncio.Event()
        self.may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()


class Connection:
    """Two ends of a connection of this machine; ``client`` takes little at once."""

    def __init__(self, accepting: Accepting, client: socket.socket) -> None:
        self.accepting, self.client = accepting, client

    @classmethod
    async def make(cls) -> Connection:
        ours, client = socket.socketpair()
        for end in (ours, client):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
            end.setblocking(False)
        _, accepting = await asyncio.get_running_loop().create_unix_connection(Accepting, sock=ours)
        return cls(accepting, client)

    @property
    def state(self) -> dict[str, Any]:
        return {TRANSPORT: self.accepting.transport}

    async def send(self, message: Message) -> None:
        """What uvicorn does with a chunked body."""
        await self.accepting.may_write.wait()
        if message["type"] == "http.response.body":
            data = message["body"]
            last = b"" if message.get("more_body") else b"0\r\n\r\n"
            chunk = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            self.accepting.transport.write(chunk + last)

    async def read(self, until: Callable[[ChunkReader], bool] = lambda reader: reader.is_done) -> bytes:
        """Return the body."""
        reader, body = ChunkReader(), b""
        while not until(reader):
            data = await asyncio.get_running_loop().sock_recv(self.client, 4096)
            if not data:
                break
            body += reader.push(data)
        return body


def run(loop: Callable[[], Any], test: Callable[[Connection], Any]) -> Any:
    async def go() -> Any:
        connection = await Connection.make()
        try:
            return await test(connection)
        finally:
            connection.accepting.transport.abort()
            connection.client.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(go())


@contextmanager
def a_line(connection: Connection) -> Iterator[Line]:
    line = Line.of(connection.state)
    assert line is not None
    yield line
    line.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_what_a_client_does_not_take_is_left_to_the_transport(loop: Callable[[], Any]) -> None:
    async def test(connection: Connection) -> None:
        with a_line(connection) as line:
            assert line.is_clear
            sent = 1
            while line.write(b"x" * 999):
                sent += 1
            assert sent > 1, "a piece that fits leaves at once"
            assert not line.is_clear
            line.finish()
            connection.accepting.transport.write(b"0\r\n\r\n")
            assert await connection.read() == b"x" * 999 * sent
            assert line.is_clear

    run(loop, test)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_closed_line_and_a_lost_connection_take_nothing(loop: Callable[[], Any]) -> None:
    async def test(connection: Connection) -> None:
        with a_line(connection) as line:
            connection.client.close()
            assert not line.write(b"to nobody")
            for _ in range(5):
                await asyncio.sleep(0)
            assert connection.accepting.transport.is_closing(), "the transport met the broken connection"
            assert not line.write(b"to nobody")
            line.finish()
            line.close()
            assert not line.write(b"late")

    run(loop, test)


@pytest.mark.parametrize("loop", LOOPS)
def test_half_a_piece_does_not_wait_for_the_next_one(loop: Callable[[], Any]) -> None:
    """The next one may be seconds away: its text may be held back, or its request preempted."""

    async def test(connection: Connection) -> None:
        with a_line(connection) as line:
            sent = 1
            while await asyncio.to_thread(line.write, b"x" * 999):
                sent += 1
            body = b""
            reader = ChunkReader()
            while len(body) < 999 * sent:
                data = await asyncio.wait_for(
                    asyncio.get_running_loop().sock_recv(connection.client, 4096), 30
                )
                body += reader.push(data)

    run(loop, test)


def test_without_descriptors_there_is_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """It raised, and the request ran on with nobody to read it: others may hold all descriptors."""

    def none_left(*args: object) -> None:
        raise OSError(24, "Too many open files")

    async def test(connection: Connection) -> None:
        monkeypatch.setattr(socket, "fromfd", none_left)
        assert Line.of(connection.state) is None

    run(asyncio.new_event_loop, test)


def test_a_line_never_writes_to_who_got_the_number_of_a_closed_connection() -> None:
    """The transport may close its socket while a step runs; the next connection gets the same number."""

    async def test(connection: Connection) -> None:
        with a_line(connection) as line:
            number = connection.accepting.transport.get_extra_info("socket").fileno()
            connection.accepting.transport.abort()
            for _ in range(5):
                await asyncio.sleep(0)
            strangers = socket.socketpair()
            assert number in [end.fileno() for end in strangers]
            line.write(b"secret")
            for end in strangers:
                end.setblocking(False)
                with pytest.raises(BlockingIOError):
                    end.recv(100)
            for end in strangers:
                end.close()

    run(asyncio.new_event_loop, test)


def test_there_is_none_behind_tls_nor_without_a_transport() -> None:
    class Tls:
        def is_closing(self) -> bool:
            return False

        def get_extra_info(self, name: str) -> object:
            return object()

    assert Line.of({}) is None
    assert Line.of({TRANSPORT: Tls()}) is None


# ---- an event stream that is fed by a job ----


class Feed:
    """A job of one part whose frames are its steps' texts; and the engine's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.part = Part(0, "r-0", (1,), SamplingParams())
        self.job = Job("r", [self.part])
        self.num_by_loop = 0
        self._loop = loop

    async def frames(self) -> AsyncIterator[bytes]:
        async for steps in self.job.steps():
            yield "".join(step.text for _, step in steps).encode()

    def lend(self, write: Callable[[bytes], bool]) -> None:
        self.job.lend(lambda _, step: write(step.text.encode()))

    def pass_on(self, step: StepOutput) -> None:
        left = self.job.pass_on(self.part, step)
        if left is not None:
            self.num_by_loop += 1
            self._loop.call_soon_threadsafe(self.job.put, self.part, left)

    def steps(self, pieces: Sequence[bytes], pause: Callable[[int], None]) -> threading.Thread:
        def engine() -> None:
            for number, piece in enumerate(pieces):
                pause(number)
                self.pass_on(StepOutput("r-0", (1, 2), piece.decode()))
            metrics = RequestMetrics(1, 2, 1, 1, 0, 0, 0, (), (), 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
            end = CompletionOutput(0, "", (), (), metrics, finish_reason="length")
            self.pass_on(StepOutput("r-0", (), "", completion=end))

        thread = threading.Thread(target=engine)
        thread.start()
        return thread


async def serve(
    connection: Connection, pieces: Sequence[bytes], pause: Callable[[int], None], until: int
) -> tuple[Feed, bytes]:
    """Stream ``pieces`` to a client that begins to read when the engine is at number ``until``."""
    feed = Feed(asyncio.get_running_loop())
    response = EventStream(feed.frames(), lambda: None, feed.lend)
    begin = asyncio.Event()

    async def receive() -> Message:
        await asyncio.sleep(3600)
        return {"type": "http.disconnect"}

    def each(number: int) -> None:
        pause(number)
        if number == until:
            asyncio_loop.call_soon_threadsafe(begin.set)

    asyncio_loop = asyncio.get_running_loop()
    serving = asyncio.ensure_future(
        response({"type": "http", "state": connection.state}, receive, connection.send)
    )
    thread = feed.steps(pieces, each)
    await begin.wait()
    reading = asyncio.ensure_future(connection.read())
    await serving
    body = await reading
    thread.join()
    return feed, body


@pytest.mark.parametrize("until", [0, 50, len(PIECES) - 1])
@pytest.mark.parametrize("loop", LOOPS)
def test_nothing_is_lost_or_swapped(loop: Callable[[], Any], until: int) -> None:
    async def test(connection: Connection) -> None:
        def pause(number: int) -> None:
            time.sleep(0.001 * (number % 3))

        feed, body = await serve(connection, PIECES, pause, until)
        assert body == b"".join(PIECES)
        assert feed.part.num_tokens == 2 * len(PIECES)
        assert until > 50 or feed.num_by_loop < len(PIECES) - 10, "the engine's thread wrote some"

    run(loop, test)


def test_a_client_that_keeps_up_leaves_the_event_loop_alone() -> None:
    async def test(connection: Connection) -> None:
        idle = threading.Event()

        def pause(number: int) -> None:
            idle.wait(0.002 if number > 2 else 0.1)

        feed, body = await serve(connection, PIECES[:40], pause, 0)
        assert body == b"".join(PIECES[:40])
        assert feed.num_by_loop < 20

    run(asyncio.new_event_loop, test)


def test_without_a_line_everything_goes_by_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(connection: Connection) -> None:
        monkeypatch.setattr(Connection, "state", {})
        feed, body = await serve(connection, PIECES[:40], lambda number: None, 0)
        assert body == b"".join(PIECES[:40])
        assert feed.num_by_loop == 41

    run(asyncio.new_event_loop, test)


def test_a_piece_that_cannot_be_made_ends_its_own_request_only(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        feed = Feed(asyncio.get_running_loop())
        stream = feed.frames()
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)

        def broken(part: Part, step: StepOutput) -> bool:
            raise ValueError("no such piece")

        feed.job.lend(broken)
        feed.pass_on(StepOutput("r-0", (1,), "a"))  # raises nothing: other requests' events come behind it
        taken: list[str] = []
        with pytest.raises(ApiError, match="failed"):
            await waiting
        feed.job.lend(lambda _, step: bool(taken.append(step.text)))
        feed.pass_on(StepOutput("r-0", (1,), "b"))
        assert not taken, "nothing comes behind the error"

    asyncio.run(test())
    assert "no such piece" in caplog.text


def test_nothing_can_be_lent_while_a_step_is_underway() -> None:
    async def test() -> None:
        feed = Feed(asyncio.get_running_loop())
        feed.pass_on(StepOutput("r-0", (1,), "a"))
        taken: list[str] = []

        def take(part: Part, step: StepOutput) -> bool:
            taken.append(step.text)
            return True

        feed.job.lend(take)
        feed.pass_on(StepOutput("r-0", (1,), "b"))
        assert taken == [], "b would have overtaken a"
        assert await anext(feed.frames()) == b"ab"
        feed.job.lend(take)
        feed.pass_on(StepOutput("r-0", (1,), "c"))
        assert taken == ["c"]

    asyncio.run(test())
