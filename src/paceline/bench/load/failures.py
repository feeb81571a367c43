"""Why a request to a server failed: a kind to count by, and words for a person."""

from __future__ import annotations

import json

import httpx2

from paceline.errors import EndpointError

MAX_QUOTED = 160
"""Characters of a server's answer that a message repeats: enough for its error text, not for its page."""

CONNECT, TIMEOUT, NOT_A_STREAM, BAD_JSON, SERVER_ERROR, CUT, EMPTY = (
    "connect",
    "timeout",
    "not_a_stream",
    "bad_json",
    "server_error",
    "cut",
    "empty",
)


class ReplyError(Exception):
    """One request did not get its reply. ``kind``: one of the above or ``http_`` and the status."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


def quote(text: str) -> str:
    """Return the beginning of a server's answer on one line, in quotes."""
    line = " ".join(text.split())
    return repr(line if len(line) <= MAX_QUOTED else line[: MAX_QUOTED - 1] + "…")


def failed_status(status: int, content_type: str, body: str) -> ReplyError:
    """Return the failure for an answer whose status is not 200, with the server's own message in it."""
    return ReplyError(f"http_{status}", f"answers HTTP {status}: {_message_of(content_type, body)}")


def failed_transport(error: Exception, timeout: float) -> ReplyError:
    """Return the failure for what the HTTP client raised."""
    text = str(error) or type(error).__name__
    if isinstance(error, httpx2.ConnectTimeout):
        return ReplyError(CONNECT, "does not accept the connection in time")
    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        return ReplyError(TIMEOUT, f"did not finish its answer within {timeout:g} s (--timeout)")
    if isinstance(error, httpx2.ConnectError | httpx2.UnsupportedProtocol | httpx2.ProxyError):
        return ReplyError(CONNECT, f"cannot be reached ({text})")
    return ReplyError(CUT, f"broke off the connection ({text})")


def _message_of(content_type: str, body: str) -> str:
    if "html" in content_type:
        return f"an HTML page, {quote(body)}"
    try:
        answer = json.loads(body)
    except ValueError:
        return quote(body) if body.strip() else "no text"
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    text = error.get("message", error) if isinstance(error, dict) else error
    return quote(text if isinstance(text, str) else json.dumps(text))


def endpoint_error(url: str, expected: str, failure: ReplyError) -> EndpointError:
    """Return the error for the user: the address, what it did, what was expected of it, the way out."""
    hints = {
        CONNECT: "start the server, or check the address",
        TIMEOUT: "give it more time with --timeout, or ask for less at once",
        "http_401": "give the key with --api-key or PACELINE_API_KEY",
        "http_403": "give a key that may use the model with --api-key or PACELINE_API_KEY",
        "http_404": "check the path (…/v1), --api and --model",
        EMPTY: "allow more tokens, or try other prompts",
    }
    hint = hints.get(failure.kind, "check that the address is that of an OpenAI-compatible server")
    return EndpointError(f"{url} {failure.detail}; expected {expected}: {hint}")
