"""Answers that end when their client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paceline.server.line import CHUNKED, Line

T = TypeVar("T")


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(request: Request, work: Awaitable[T]) -> T | None:
    """Return what ``work`` gives; ``None``, and cancel it, when the client went away first."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(request.receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        return None
    finally:
        for future in (task, watch):
            future.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


class EventStream(Response):
    """Server-sent events. ``close`` is called once at the end, whoever ended it. ``lend``: is given the means
    to send events from another thread that ``frames`` would yield later; see ``Composer.lend``.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        close: Callable[[], None],
        lend: Callable[[Callable[[bytes], bool]], None],
    ) -> None:
        # X-Accel-Buffering: a proxy (nginx) that collects small pieces would undo the streaming.
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._frames = frames
        self._close = close
        self._lend = lend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Nothing that wraps the application looks at bodies: they go out by the gate's own ``send``.
        send_body = scope["state"].get("send", send)
        line = Line.of(scope["state"])
        task = asyncio.ensure_future(self._send_all(send, send_body, line))
        watch = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            self._close()
            if line is not None:
                line.close()
            for future in (task, watch):
                future.cancel()
            await asyncio.gather(task, watch, return_exceptions=True)

    async def _send_all(self, send: Send, send_body: Send, line: Line | None) -> None:
        headers = [*self.raw_headers, *([] if line is None else [CHUNKED])]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for frames in self._frames:
            if line is None:
                await _send_piece(send_body, frames)
                continue
            line.finish()
            await _send_piece(send_body, frames)
            await asyncio.sleep(0)  # uvloop's transports write at the end of a round
            if line.is_clear:
                self._lend(line.write)
        if line is not None:  # nothing may come behind the end
            line.close()
            line.finish()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_piece(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})
