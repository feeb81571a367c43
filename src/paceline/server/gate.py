"""What stands in front of the application: request ids, keys, sizes, and a line in the log for each answer.

Plain ASGI, so that streams pass without a detour. A body is read whole, within its bounds, before anything
looks at it; what comes after it (a disconnection) still reaches the application.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time
import uuid
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paceline.server import logs
from paceline.server.errors import ApiError, bad_request, stopping
from paceline.server.metrics import Metrics
from paceline.server.settings import ServerSettings

OPEN_PATHS = frozenset({"/", "/docs", "/health", "/openapi.json", "/ready"})
"""Answered without a key: what a load balancer asks, and a page that holds no data."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TOO_LARGE = 413


class Disconnected(Exception):  # noqa: N818 (it is no error of anyone's)
    """The client went away before its request was whole."""


class Gate:
    """Wraps ``app``. Answers refused requests itself."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._keys = [key.encode() for key in settings.api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:  # no websockets here
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        answer = _Answer(send, _request_id(headers))
        state = scope.setdefault("state", {})
        state |= {"request_id": answer.request_id, "arrived": time.monotonic(), "log": {}, "send": send}
        try:
            state["client"] = self._client(scope, headers)
            if scope["method"] == "POST":
                receive = await self._whole_body(headers, receive)
            await self._app(scope, receive, answer.send)
        except Disconnected:
            answer.status = 499
        except ApiError as error:
            await answer.refuse(error)
        except asyncio.CancelledError:  # the server ends and waits no longer for this one
            if not answer.has_started:
                await answer.refuse(stopping())
        finally:
            if answer.status >= 400:
                self._metrics.count_error(answer.status)
            self._log(scope, answer, state)

    def _client(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
        """Return whose request it is: a key's number, else an address. Raises ``ApiError`` without a key.

        Every key is compared, in constant time.
        """
        path, address = scope["path"], scope.get("client")
        if not self._keys or path in OPEN_PATHS or path.startswith("/static/"):
            return address[0] if address else ""
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        given = given.strip() if kind.lower() == b"bearer" else b""
        fits = [hmac.compare_digest(key, given) for key in self._keys]
        if not any(fits):
            raise ApiError(
                401,
                "no valid API key: send it as `Authorization: Bearer KEY`",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return f"key {fits.index(True)}"

    async def _whole_body(self, headers: Mapping[bytes, bytes], receive: Receive) -> Receive:
        """Read the body; return what the application is to receive from. Raises ``ApiError``."""
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        length = headers.get(b"content-length", b"0")
        is_empty = length == b"0" and b"transfer-encoding" not in headers
        if kind != b"application/json" and not is_empty:
            # Also what keeps foreign web pages out: a browser asks before it sends this type elsewhere.
            raise ApiError(415, "send JSON, with the header Content-Type: application/json")
        most = self._settings.max_body_bytes
        if length.isdigit() and int(length) > most:
            raise _too_large(most)
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                body = await _read(receive, most)
        except TimeoutError:
            raise ApiError(408, "the body took too long to come", headers={"Connection": "close"}) from None
        return _replay(body, receive)

    def _log(self, scope: Scope, answer: _Answer, state: Mapping[str, Any]) -> None:
        level = 20 if answer.status < 500 else 40
        if scope["path"] in ("/health", "/ready", "/metrics") and answer.status < 400:
            level = 10  # asked every few seconds, by machines
        entry = {
            "request_id": answer.request_id,
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": answer.status,
            "seconds": round(time.monotonic() - state["arrived"], 4),
            **state["log"],
        }
        logs.access.log(level, "request", extra=entry)


class _Answer:
    """Watches an answer go out; adds the request's id to it."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.status = 500
        self.has_started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            self.status = message["status"]
            extra = [
                (b"x-request-id", self.request_id.encode()),
                (b"x-content-type-options", b"nosniff"),
            ]
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await self._send(message)

    async def refuse(self, error: ApiError) -> None:
        """Answer with an error."""
        if self.has_started:
            raise error
        body = json.dumps(error.body).encode()
        headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self.send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def _request_id(headers: Mapping[bytes, bytes]) -> str:
    """Return the caller's own id if it is a plain one, else a new one."""
    given = headers.get(b"x-request-id", b"").decode("latin-1")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


async def _read(receive: Receive, most: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        body += message.get("body", b"")
        if len(body) > most:
            raise _too_large(most)
        if not message.get("more_body", False):
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that gives ``body`` first and then what really comes."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _too_large(most: int) -> ApiError:
    error = bad_request(f"the body is larger than the {most} bytes this server takes")
    error.status = _TOO_LARGE
    error.code = "body_too_large"
    return error
