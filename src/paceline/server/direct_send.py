"""Sends pieces of a body at once, from outside the task that answers the request."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from starlette.types import Send


class DirectSend:
    """``send``: of an ASGI server, which waits for nothing unless the client takes too little.

    Not for two tasks at once: whoever sends by other means awaits :meth:`finished` first.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._rest: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    def write(self, data: bytes) -> bool:
        """Send ``data``; return whether the next piece may come before :meth:`finished` was awaited.

        Nothing is raised here: :meth:`finished` does.
        """
        message = {"type": "http.response.body", "body": data, "more_body": True}
        sending = self._send(message).__await__()
        try:
            awaited = next(sending)
        except StopIteration:
            return True
        except Exception as error:
            self._error = error
        else:
            self._rest = asyncio.ensure_future(_go_on(sending, awaited))
        return False

    async def finished(self) -> None:
        """Wait until the last piece is on its way. Raises what sending it raised."""
        if self._error is not None:
            raise self._error
        if self._rest is not None:
            await self._rest
            self._rest = None

    def cancel(self) -> None:
        """Give up what is still to be sent."""
        if self._rest is not None:
            self._rest.cancel()


class _Rest:
    """An awaitable that goes on where another was left."""

    def __init__(self, begun: Generator[object, None, None], awaited: object) -> None:
        self._begun, self._awaited = begun, awaited

    def __await__(self) -> Generator[object, None, None]:
        yield self._awaited
        yield from self._begun


async def _go_on(begun: Generator[object, None, None], awaited: object) -> None:
    await _Rest(begun, awaited)
