"""What a server says: one whole reply, with ids and log-probabilities where it tells them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from paceline.bench.load.endpoint import Server
from paceline.bench.load.failures import (
    BAD_JSON,
    ReplyError,
    endpoint_error,
    failed_status,
    failed_transport,
)

_TOP = 5
_EXPECTED = "a completion in OpenAI's form as JSON"

Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Token:
    """``id``: ``None`` where the server tells none. ``top``: log-probabilities of the likeliest by text."""

    text: str
    id: int | None
    logprob: float
    top: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply. ``tokens``, ``token_ids``: ``None`` where not told. ``usage``: of prompt and reply."""

    text: str
    finish_reason: str | None
    usage: tuple[int, int] | None
    tokens: tuple[Token, ...] | None
    token_ids: tuple[int, ...] | None


@dataclass(slots=True)
class Asker:
    """Asks one server for greedy replies. ``wants_logprobs`` ends when the server refuses them."""

    client: httpx2.AsyncClient
    server: Server
    max_tokens: int
    timeout: float
    wants_logprobs: bool = True

    @property
    def url(self) -> str:
        return self.server.endpoint.url

    async def ask(self, messages: Messages) -> Answer:
        """Return the reply. Raises ``EndpointError`` with the address and what was expected."""
        while True:
            try:
                return parse_answer(await self._post(messages))
            except ReplyError as failure:
                # Servers that know no log-probabilities refuse the request as a whole.
                if not (self.wants_logprobs and failure.kind in ("http_400", "http_422", "http_501")):
                    raise endpoint_error(self.url, _EXPECTED, failure) from None
                self.wants_logprobs = False

    async def _post(self, messages: Messages) -> Any:
        try:
            reply = await self.client.post(self.url, json=self._body(messages))
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise failed_transport(error, self.timeout) from error
        content_type = reply.headers.get("content-type", "")
        if reply.status_code != 200:
            raise failed_status(reply.status_code, content_type, reply.text)
        try:
            return json.loads(reply.text)
        except ValueError:
            what = "an HTML page" if "html" in content_type else "something that is not JSON"
            raise ReplyError(BAD_JSON, f"answers {what}") from None

    def _body(self, messages: Messages) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.server.model,
            "max_tokens": self.max_tokens,
            "temperature": 0.0,
            "stream": False,
        }
        chat = self.server.endpoint.api == "chat"
        if chat:
            body["messages"] = [dict(message) for message in messages]
        else:
            body["prompt"] = "\n\n".join(message["content"] for message in messages)
        if self.wants_logprobs:
            body |= {"logprobs": True, "top_logprobs": _TOP} if chat else {"logprobs": _TOP}
        if self.server.dialect == "vllm":
            body["return_token_ids"] = True
        return body


def parse_answer(data: Any) -> Answer:
    """Return the reply in a server's answer. Raises ``ReplyError`` for one in another form."""
    try:
        choice = data["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        tokens = _tokens(choice.get("logprobs"))
        ids = choice.get("token_ids")
        if ids is None and tokens is not None and all(token.id is not None for token in tokens):
            ids = [token.id for token in tokens]
        used = data.get("usage")
        return Answer(
            str(text or ""),
            choice.get("finish_reason"),
            (int(used["prompt_tokens"]), int(used["completion_tokens"])) if used else None,
            tokens,
            None if ids is None else tuple(int(token) for token in ids),
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ReplyError(
            BAD_JSON, f"answers JSON of another form ({type(error).__name__}: {error})"
        ) from None


def _tokens(given: Any) -> tuple[Token, ...] | None:
    """Read the chat form (``content``), which llama.cpp uses throughout, or the older one of completions."""
    if not given:
        return None
    if given.get("content") is not None:
        return tuple(
            Token(
                entry["token"],
                entry.get("id"),
                float(entry["logprob"]),
                {other["token"]: float(other["logprob"]) for other in entry.get("top_logprobs") or ()},
            )
            for entry in given["content"]
        )
    if given.get("tokens") is None:
        return None
    tops = given.get("top_logprobs") or [{}] * len(given["tokens"])
    return tuple(
        Token(text, None, float(logprob), {key: float(value) for key, value in (top or {}).items()})
        for text, logprob, top in zip(given["tokens"], given["token_logprobs"], tops, strict=True)
    )
