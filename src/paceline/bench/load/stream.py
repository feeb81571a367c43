"""One streamed reply, with the time of every piece."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2

from paceline.bench.load import failures
from paceline.bench.load.events import EventReader
from paceline.bench.load.failures import ReplyError, failed_status, failed_transport, quote
from paceline.bench.load.local import COLLECT, Arrival

CountedBy = Literal["usage", "timings", "chunks"]
DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of text. ``at``: seconds of the process clock. ``tokens``: in it, ``None`` when not told."""

    at: float
    tokens: int | None


@dataclass(frozen=True, slots=True)
class TimedReply:
    """One reply that came to its end.

    ``sent``, ``ended``: seconds of the process clock; in an open loop ``sent`` is when the request was due,
    so that a late client does not flatter the server. ``ended``: the last event that held a choice.
    ``chunks``: those with text, at least one. ``num_output_tokens`` is counted by the server (``usage``,
    ``timings``) or, where it does not tell, is the number of ``chunks``. ``drafted``, ``accepted``:
    llama.cpp's, for this reply.
    """

    sent: float
    ended: float
    chunks: tuple[Chunk, ...]
    num_output_tokens: int
    num_prompt_tokens: int | None
    counted_by: CountedBy
    finish_reason: str | None
    drafted: int | None
    accepted: int | None


@dataclass(slots=True)
class _Reader:
    """Adds up the events of one reply."""

    chunks: list[Chunk] = field(default_factory=list)
    ended: float = 0.0
    done: bool = False
    finish_reason: str | None = None
    counted: int = 0
    usage: Mapping[str, Any] | None = None
    timings: Mapping[str, Any] | None = None

    def take(self, data: bytes, now: float) -> None:
        if data.strip() == DONE:
            self.done = True
            return
        event = _parse(data)
        usage, timings, choices = event.get("usage"), event.get("timings"), event.get("choices")
        self.usage = usage if isinstance(usage, dict) else self.usage
        self.timings = timings if isinstance(timings, dict) else self.timings
        if not choices:  # the closing event with usage
            return
        choice = choices[0] if isinstance(choices, list) and isinstance(choices[0], dict) else None
        if choice is None:
            raise ReplyError(failures.BAD_JSON, f"streams an event whose choices are {quote(_text(data))}")
        self.ended = now
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        if _has_text(choice):
            self.chunks.append(Chunk(now, self._tokens_since(usage, timings)))

    def _tokens_since(self, usage: object, timings: object) -> int | None:
        """Return the tokens since the last piece of text, from counts that run along with the text."""
        total = None
        if isinstance(usage, dict):
            total = usage.get("completion_tokens")
        elif isinstance(timings, dict):
            total = timings.get("predicted_n")
        if not isinstance(total, int) or total < self.counted:
            return None
        new, self.counted = total - self.counted, total
        return new

    def reply(self, sent: float) -> TimedReply:
        if not self.done and self.finish_reason is None:
            raise ReplyError(failures.CUT, "ended the stream in the middle of a reply")
        if not self.chunks:
            raise ReplyError(failures.EMPTY, "ended a reply without any text")
        tokens, counted_by = self._count()
        timings = self.timings or {}
        drafted = timings.get("draft_n")
        return TimedReply(
            sent,
            self.ended,
            tuple(self.chunks),
            tokens,
            None if self.usage is None else self.usage.get("prompt_tokens"),
            counted_by,
            self.finish_reason,
            drafted,
            None if drafted is None else timings.get("draft_n_accepted", 0),
        )

    def _count(self) -> tuple[int, CountedBy]:
        if self.usage is not None and isinstance(self.usage.get("completion_tokens"), int):
            return self.usage["completion_tokens"], "usage"
        if self.timings is not None and isinstance(self.timings.get("predicted_n"), int):
            return self.timings["predicted_n"], "timings"
        return len(self.chunks), "chunks"


async def stream_reply(
    client: httpx2.AsyncClient, url: str, body: Mapping[str, Any], timeout: float, due: float | None = None
) -> TimedReply:
    """Ask for a streamed reply and read it to its end. ``due``: when it should have been sent, if not now.

    Raises ``ReplyError``.
    """
    sent = time.perf_counter() if due is None else due
    arrived: list[Arrival] = []
    broken: Exception | None = None
    try:
        async with asyncio.timeout(timeout), client.stream("POST", url, json=dict(body)) as response:
            await _check_answer(response)
            await _collect(response, arrived)
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        broken = error
    reader = _read(arrived)
    if broken is not None and not (reader.done and reader.chunks):
        # After [DONE] the reply is whole, however the server hangs up.
        raise failed_transport(broken, timeout) from broken
    return reader.reply(sent)


async def _collect(response: httpx2.Response, arrived: list[Arrival]) -> None:
    """Append the pieces of a stream as they come, also when it breaks off."""
    collect = response.extensions.get(COLLECT)
    if collect is not None and "content-encoding" not in response.headers:
        await collect(arrived)
        return
    async for data in response.aiter_bytes():
        arrived.append((time.perf_counter(), data))  # noqa: PERF401 (a failure would take all along)


def _read(arrived: Iterable[Arrival]) -> _Reader:
    """Understand a reply once it is there: a client on the server's own cores slows down what it measures."""
    reader, events = _Reader(), EventReader()
    for at, data in arrived:
        for event in events.push(data):
            reader.take(event, at)
    return reader


async def _check_answer(response: httpx2.Response) -> None:
    content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.status_code == 200 and content_type == "text/event-stream":
        return
    text = (await response.aread()).decode("utf-8", errors="replace")
    if response.status_code != 200:
        raise failed_status(response.status_code, content_type, text)
    what = "an HTML page" if "html" in content_type else f"{content_type or 'no content type'}"
    raise ReplyError(failures.NOT_A_STREAM, f"answers {what} where a stream was asked for: {quote(text)}")


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _parse(data: bytes) -> Mapping[str, Any]:
    try:
        event = json.loads(data.decode())
    except ValueError:
        text = quote(_text(data))
        raise ReplyError(failures.BAD_JSON, f"streams an event that is not JSON: {text}") from None
    if not isinstance(event, dict):
        text = quote(_text(data))
        raise ReplyError(failures.BAD_JSON, f"streams an event that is no JSON object: {text}")
    error = event.get("error")
    if error:
        text = error.get("message", error) if isinstance(error, dict) else error
        raise ReplyError(failures.SERVER_ERROR, f"reports an error within the stream: {quote(str(text))}")
    return event


def _has_text(choice: Mapping[str, Any]) -> bool:
    """Whether an event shows something of the reply: its text, its reasoning or a tool call."""
    delta = choice.get("delta")
    parts: Mapping[str, Any] = delta if isinstance(delta, dict) else choice
    return any(
        parts.get(name) for name in ("content", "text", "reasoning_content", "reasoning", "tool_calls")
    )
