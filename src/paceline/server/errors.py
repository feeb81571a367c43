"""What goes wrong, in the form that OpenAI's clients understand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paceline.errors import (
    CacheFullError,
    ConfigError,
    DrafterError,
    GrammarError,
    LogitsError,
    PromptError,
    QueueFullError,
)

_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_NAME = re.compile(r"([a-z][a-z_]+)\b")
_FULL = "the server is full"


class ApiError(Exception):
    """An answer other than a reply. ``param``: the parameter at fault; ``headers``: extra ones."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """The JSON that is answered, and what a broken stream says."""
        kind = _KINDS.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return the error of a request that can never succeed."""
    return ApiError(400, message, param=param, code=code)


def too_busy(message: str, seconds: float) -> ApiError:
    """Return the error of a full queue. ``seconds``: when another try is worth it."""
    retry = {"Retry-After": str(max(1, round(seconds)))}
    return ApiError(429, f"{_FULL}: {message}", code="queue_full", headers=retry)


def stopping() -> ApiError:
    """Return the error of a server that drains."""
    return ApiError(503, "the server is stopping", code="stopping", headers={"Retry-After": "10"})


def as_api_error(error: Exception, known: Mapping[str, str] | None = None) -> ApiError:
    """Return what a failure inside means for the caller; the unforeseen ones tell nothing of the inside.

    ``known``: the API's name of a parameter by the library's, where they differ or it may be named.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFullError):
        return too_busy(str(error), error.retry_after)
    if isinstance(error, PromptError):
        too_long = "leaves no room" in str(error)
        return bad_request(str(error), "prompt", "context_length_exceeded" if too_long else None)
    if isinstance(error, GrammarError):
        return bad_request(str(error), code="grammar_error")
    if isinstance(error, CacheFullError):
        return bad_request(str(error), "max_tokens", "context_length_exceeded")
    if isinstance(error, ConfigError | DrafterError):
        first = _NAME.match(str(error))
        name = first[1] if first else ""
        return bad_request(str(error), (known or {}).get(name))
    if isinstance(error, LogitsError):
        return ApiError(500, "the model computed no valid probabilities for this request", code="bad_logits")
    return ApiError(500, "the engine failed on this step; the request ended", code="engine_error")
