"""Answers that end when their client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paceline.server.direct_send import DirectSend

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
    """Server-sent events. ``close`` is called once at the end, whoever ended it. ``take_shortcut``: is given
    the means to send events at once that ``frames`` would yield later; see ``Composer.take_shortcut``.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        close: Callable[[], None],
        take_shortcut: Callable[[Callable[[bytes], bool]], None],
    ) -> None:
        # X-Accel-Buffering: a proxy (nginx) that collects small pieces would undo the streaming.
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._frames = frames
        self._close = close
        self._take_shortcut = take_shortcut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        direct = DirectSend(scope["state"].get("send", send))
        task = asyncio.ensure_future(self._send_all(send, direct))
        watch = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            self._close()
            for future in (task, watch, direct):
                future.cancel()
            await asyncio.gather(task, watch, return_exceptions=True)

    async def _send_all(self, send: Send, direct: DirectSend) -> None:
        """``direct`` is by the gate's own ``send``: nothing that wraps the application looks at bodies, and
        each piece would pass through it all, on cores that the forward wants.
        """
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for frames in self._frames:
            await direct.finished()
            direct.write(frames)
            await direct.finished()
            self._take_shortcut(direct.write)
        await direct.finished()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
