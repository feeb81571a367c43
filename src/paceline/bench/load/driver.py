"""Many requests at once: the closed loop keeps N in flight, the open one sends them when they are due."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from paceline.bench.datasets import BenchPrompt
from paceline.bench.load import failures
from paceline.bench.load.arrivals import arrival_times
from paceline.bench.load.counters import Counters, read_counters
from paceline.bench.load.endpoint import Endpoint, Server, find_server, make_client
from paceline.bench.load.failures import ReplyError, endpoint_error
from paceline.bench.load.settings import LoadSettings
from paceline.bench.load.stream import TimedReply, stream_reply
from paceline.errors import EndpointError

EXPECTED = "server-sent events of OpenAI's protocol"
PROBE_TOKENS = 8


@dataclass(slots=True)
class PointRun:
    """What happened at one concurrency or one rate; the other of the two is ``None``.

    ``started``, ``ended``: seconds of the process clock, first request due to last reply read. ``late``: the
    most seconds this client sent a request after it was due.
    """

    concurrency: int | None
    rate: float | None
    started: float = 0.0
    ended: float = 0.0
    late: float = 0.0
    replies: list[TimedReply] = field(default_factory=list)
    failed: list[ReplyError] = field(default_factory=list)
    counters: tuple[Counters | None, Counters | None] = (None, None)


@dataclass(frozen=True, slots=True)
class LoadRun:
    """All points of a run, and what was found out about the server. ``notes``: what a reader must know."""

    server: Server
    points: tuple[PointRun, ...]
    num_prompts: int
    notes: tuple[str, ...]


Progress = Callable[[PointRun, bool], None]
"""Called after each request: of which point, and whether it was a warm-up."""


def run_load(
    endpoint: Endpoint,
    prompts: Sequence[BenchPrompt],
    settings: LoadSettings,
    *,
    model: str | None = None,
    api_key: str | None = None,
    progress: Progress = lambda point, warm_up: None,
) -> LoadRun:
    """Put the load on the server, point after point. Prompts are taken in turn, each one's first turn.

    Raises ``EndpointError`` when the server is not there, is no OpenAI-compatible one, or when every request
    of a point fails; single failures are counted.
    """
    with asyncio.Runner(loop_factory=_light_loop()) as runner:
        return runner.run(_run(endpoint, prompts, settings, model, api_key, progress))


def _light_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's, where it is installed: the client takes less from a server on the same cores."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _run(
    endpoint: Endpoint,
    prompts: Sequence[BenchPrompt],
    settings: LoadSettings,
    model: str | None,
    api_key: str | None,
    progress: Progress,
) -> LoadRun:
    async with make_client(endpoint, api_key, settings.timeout) as client:
        server = await find_server(client, endpoint, model, settings.timeout)
        caller = Caller(client, server, prompts, settings)
        await caller.probe()
        points = [PointRun(concurrency, None) for concurrency in settings.concurrency]
        points += [PointRun(None, rate) for rate in settings.rates]
        for point in points:
            await _run_point(caller, point, progress)
        return LoadRun(caller.server, tuple(points), len(prompts), tuple(caller.notes))


class Caller:
    """Asks one server for the replies to prompts in turn."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        server: Server,
        prompts: Sequence[BenchPrompt],
        settings: LoadSettings,
    ) -> None:
        self.client, self.server, self.settings = client, server, settings
        self.notes: list[str] = []
        self._prompts = itertools.cycle(enumerate(prompts))

    async def probe(self) -> None:
        """Ask for one short reply. A server that knows no ``stream_options`` is asked without from then on.

        Raises ``EndpointError`` with what it answered instead of a stream.
        """
        number, prompt = next(self._prompts)
        try:
            try:
                await self._ask(number, prompt, None, PROBE_TOKENS)
            except ReplyError as failure:
                if failure.kind not in ("http_400", "http_422") or not self.server.extras:
                    raise
                plain = Server(self.server.endpoint, self.server.dialect, self.server.model, {})
                self.server, refusing = plain, self.server
                try:
                    await self._ask(number, prompt, None, PROBE_TOKENS)
                except ReplyError:
                    self.server = refusing
                    raise failure from None
                self.notes.append("the server refuses stream_options: no usage is asked for")
        except ReplyError as failure:
            if failure.kind != failures.EMPTY:  # a prompt may end at once: the points will tell
                raise endpoint_error(self.server.endpoint.url, EXPECTED, failure) from None

    async def call(self, point: PointRun, due: float | None = None) -> None:
        """Ask for the next reply; what comes of it goes into ``point``."""
        number, prompt = next(self._prompts)
        if due is not None:
            point.late = max(point.late, time.perf_counter() - due)
        try:
            point.replies.append(await self._ask(number, prompt, due, self.settings.max_tokens))
        except ReplyError as failure:
            point.failed.append(failure)

    async def _ask(self, number: int, prompt: BenchPrompt, due: float | None, max_tokens: int) -> TimedReply:
        body = self.body(number, prompt, max_tokens)
        return await stream_reply(self.client, self.server.endpoint.url, body, self.settings.timeout, due)

    def body(self, number: int, prompt: BenchPrompt, max_tokens: int) -> dict[str, Any]:
        """Return the request for the first turn of ``prompt``; above temperature 0 each has its own seed."""
        messages = prompt.messages(())
        asked: Mapping[str, Any] = (
            {"messages": messages}
            if self.server.endpoint.api == "chat"
            else {"prompt": "\n\n".join(message["content"] for message in messages) + "\n"}
        )
        settings = self.settings
        seeded = {"seed": settings.seed + number} if settings.temperature > 0 else {}
        return {
            "model": self.server.model,
            **asked,
            "max_tokens": max_tokens,
            "temperature": settings.temperature,
            **seeded,
            "stream": True,
            **self.server.extras,
            **settings.extra,
        }


async def _run_point(caller: Caller, point: PointRun, progress: Progress) -> None:
    settings = caller.settings
    width = point.concurrency or 1
    warm_up = width if settings.warm_up is None else settings.warm_up
    if warm_up:
        throwaway = PointRun(point.concurrency, point.rate)
        await _closed(caller, throwaway, width, warm_up, None, lambda: progress(point, True))
        _check_alive(caller, throwaway)
    async with _counting(caller, point):
        limit, duration = settings.request_limit, settings.duration
        if point.rate is None:
            await _closed(caller, point, width, limit, duration, lambda: progress(point, False))
        else:
            times = arrival_times(point.rate, settings.arrivals, settings.seed, limit, duration)
            await _open(caller, point, times, lambda: progress(point, False))
    _check_alive(caller, point)


@asynccontextmanager
async def _counting(caller: Caller, point: PointRun) -> AsyncIterator[None]:
    root = caller.server.endpoint.root
    before = await read_counters(caller.client, root)
    point.started = time.perf_counter()
    yield
    point.ended = time.perf_counter()
    point.counters = (before, await read_counters(caller.client, root))


async def _closed(
    caller: Caller,
    point: PointRun,
    width: int,
    limit: int | None,
    duration: float | None,
    done: Callable[[], None],
) -> None:
    numbers = itertools.count()
    end = None if duration is None else time.perf_counter() + duration

    async def worker() -> None:
        while end is None or time.perf_counter() < end:
            if limit is not None and next(numbers) >= limit:
                return
            failed = len(point.failed)
            await caller.call(point)
            done()
            if len(point.failed) > failed:
                # A server that is gone refuses in microseconds: do not count thousands of refusals.
                await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as group:
        for _ in range(width):
            group.create_task(worker())


async def _open(caller: Caller, point: PointRun, times: Iterator[float], done: Callable[[], None]) -> None:
    start = time.perf_counter()

    async def request(due: float) -> None:
        await caller.call(point, due)
        done()

    async with asyncio.TaskGroup() as group:
        for at in times:
            await asyncio.sleep(max(0.0, start + at - time.perf_counter()))
            group.create_task(request(start + at))


def _check_alive(caller: Caller, point: PointRun) -> None:
    """Raise ``EndpointError`` when nothing but failures came back."""
    if point.replies:
        return
    url = caller.server.endpoint.url
    if not point.failed:
        raise EndpointError(f"{url} was sent no request: give a longer --duration or a higher --rate")
    raise endpoint_error(url, EXPECTED, point.failed[-1])
