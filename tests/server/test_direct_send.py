"""Pieces that are sent at once arrive whole and in order, whether the client keeps up, lags, or has gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from starlette.types import Message

from paceline.engine.outputs import StepOutput
from paceline.errors import DrafterError
from paceline.sampling.params import SamplingParams
from paceline.server.direct_send import DirectSend
from paceline.server.errors import ApiError
from paceline.server.job import Job, Part
from paceline.server.watch import EventStream


class Client:
    """An ASGI server's ``send`` that waits before pieces of ``slow``, and raises at one."""

    def __init__(self, slow: Sequence[bytes] = (), broken: bytes | None = None) -> None:
        self.slow, self.broken = slow, broken
        self.got: list[bytes] = []
        self.may_go_on = asyncio.Event()

    async def send(self, message: Message) -> None:
        body = message.get("body", b"")
        if body and body == self.broken:
            raise OSError("the client has gone")
        if body in self.slow:
            await self.may_go_on.wait()
            await asyncio.sleep(0)
        if message["type"] == "http.response.body":
            self.got.append(body)


def test_a_client_that_keeps_up_gets_pieces_at_once() -> None:
    async def run() -> list[bytes]:
        client = Client()
        direct = DirectSend(client.send)
        assert direct.write(b"a") and direct.write(b"b")
        await direct.finished()
        return client.got

    assert asyncio.run(run()) == [b"a", b"b"]


def test_a_piece_that_must_wait_is_finished_first() -> None:
    async def run() -> tuple[list[bytes], list[bytes]]:
        client = Client(slow=[b"b"])
        direct = DirectSend(client.send)
        assert direct.write(b"a")
        assert not direct.write(b"b")
        before = list(client.got)
        asyncio.get_running_loop().call_later(0.01, client.may_go_on.set)
        await direct.finished()
        assert direct.write(b"c")
        return before, client.got

    assert asyncio.run(run()) == ([b"a"], [b"a", b"b", b"c"])


def test_what_sending_raises_comes_out_of_finished() -> None:
    async def run() -> None:
        direct = DirectSend(Client(broken=b"a").send)
        assert not direct.write(b"a")
        with pytest.raises(OSError, match="gone"):
            await direct.finished()

    asyncio.run(run())


def test_what_waits_can_be_given_up() -> None:
    async def run() -> list[bytes]:
        client = Client(slow=[b"a"])
        direct = DirectSend(client.send)
        direct.write(b"a")
        await asyncio.sleep(0)
        direct.cancel()
        with pytest.raises(asyncio.CancelledError):
            await direct.finished()
        return client.got

    assert asyncio.run(run()) == []


# ---- an event stream that is fed by a job ----


class Feed:
    """A job of one part, and the frames of its steps: their text."""

    def __init__(self) -> None:
        self.part = Part(0, "r-0", (1,), SamplingParams())
        self.job = Job("r", [self.part])
        self.num_woken = 0

    async def frames(self) -> AsyncIterator[bytes]:
        async for steps in self.job.steps():
            self.num_woken += 1
            yield "".join(step.text for _, step in steps).encode()

    def take_shortcut(self, write: Callable[[bytes], bool]) -> None:
        def take(part: Part, step: StepOutput) -> None:
            if not write(step.text.encode()):
                self.job.shortcut = None

        self.job.shortcut = take

    def put(self, text: str) -> None:
        self.job.put(self.part, StepOutput("r-0", (1, 2), text))

    def fail(self) -> None:
        self.job.put(self.part, StepOutput("r-0", (), "", error=DrafterError("over")))


async def serve(feed: Feed, client: Client, texts: Sequence[str], each: Callable[[str], None]) -> None:
    """Run an event stream and put ``texts`` on its job one by one, ``each`` being told before it is."""
    response = EventStream(feed.frames(), lambda: None, feed.take_shortcut)

    async def receive() -> Message:
        await asyncio.sleep(3600)
        return {"type": "http.disconnect"}

    serving = asyncio.ensure_future(response({"type": "http", "state": {}}, receive, client.send))
    for text in texts:
        for _ in range(20):
            await asyncio.sleep(0)
        each(text)
        feed.put(text)
    for _ in range(20):
        await asyncio.sleep(0)
    feed.fail()
    await serving


@pytest.mark.parametrize("slow", [(), (b"c",), (b"b", b"d")])
def test_nothing_is_lost_or_swapped_and_readers_are_seldom_woken(slow: tuple[bytes, ...]) -> None:
    async def run() -> None:
        feed, client = Feed(), Client(slow)

        def each(text: str) -> None:
            if text == "f":
                client.may_go_on.set()

        with pytest.raises(Exception, match="over"):
            await serve(feed, client, "abcdefgh", each)
        assert b"".join(client.got) == b"abcdefgh"
        assert feed.part.num_tokens == 16
        if not slow:
            assert client.got == [text.encode() for text in "abcdefgh"]
            assert feed.num_woken == 1, "for the first piece only"

    asyncio.run(run())


def test_a_reader_that_was_told_already_gets_what_follows_in_order() -> None:
    async def run() -> None:
        feed, client = Feed(), Client()
        response = EventStream(feed.frames(), lambda: None, feed.take_shortcut)

        async def receive() -> Message:
            await asyncio.sleep(3600)
            return {"type": "http.disconnect"}

        serving = asyncio.ensure_future(response({"type": "http", "state": {}}, receive, client.send))
        await asyncio.sleep(0.01)
        for text in "abc":  # within one round of the event loop
            feed.put(text)
        await asyncio.sleep(0.01)
        feed.put("d")
        feed.put("e")
        feed.fail()
        with pytest.raises(Exception, match="over"):
            await serving
        assert b"".join(client.got) == b"abcde"

    asyncio.run(run())


def test_a_piece_that_cannot_be_made_ends_its_own_request_only(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        feed = Feed()
        stream = feed.frames()
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)

        def broken(part: Part, step: StepOutput) -> None:
            raise ValueError("no such piece")

        feed.job.shortcut = broken
        feed.put("a")  # raises nothing: other requests' events come behind it
        with pytest.raises(ApiError, match="failed"):
            await waiting

    asyncio.run(run())
    assert "no such piece" in caplog.text
