"""Clients that mean harm, or know no better: the right 4xx, nothing of others, and the server goes on."""

from __future__ import annotations

import json
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.served import Served, unread

GOOD: dict[str, Any] = {"prompt": "the rest", "max_tokens": 2, "temperature": 0}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "temperature": 0}
JSON = {"Content-Type": "application/json"}
COMPLETIONS = "/v1/completions"
CHATS = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def schema(of: dict[str, Any]) -> dict[str, Any]:
    """Return a response format with a schema."""
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": of}}


@pytest.fixture(scope="module")
def right_choices(shared_server: Served) -> Any:
    return shared_server.post(COMPLETIONS, GOOD).json()["choices"]


@pytest.fixture(autouse=True)
def still_serving(served: Served, right_choices: Any) -> Any:
    yield
    assert served.post(COMPLETIONS, GOOD).json()["choices"] == right_choices


def nested(depth: int) -> dict[str, Any]:
    """Return a schema within schemas that no reply could follow."""
    inner: dict[str, Any] = {"type": "nonsense"}
    for _ in range(depth):
        inner = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
    return inner


BAD_BODIES: dict[str, tuple[str, dict[str, Any], str | None, str]] = {
    "unknown": (COMPLETIONS, {**GOOD, "temprature": 1}, "temprature", "did you mean 'temperature'"),
    "nested unknown": (
        COMPLETIONS,
        {**GOOD, "speculative": {"enabld": True}},
        "speculative.enabld",
        "did you mean 'enabled'",
    ),
    "in a message": (
        CHATS,
        {**CHAT, "messages": [{"role": "user", "contents": "a"}]},
        "messages[0].contents",
        "did you mean 'content'",
    ),
    "n": (COMPLETIONS, {**GOOD, "n": 10**9}, "n", "128"),
    "n zero": (COMPLETIONS, {**GOOD, "n": 0}, "n", "1"),
    "top_logprobs": (CHATS, {**CHAT, "logprobs": True, "top_logprobs": 10**6}, "top_logprobs", "20"),
    "top_logprobs alone": (CHATS, {**CHAT, "top_logprobs": 3}, "top_logprobs", "logprobs"),
    "many biases": (
        COMPLETIONS,
        {**GOOD, "logit_bias": {str(i): 1.0 for i in range(100_000)}},
        "logit_bias",
        "1024",
    ),
    "bias outside": (COMPLETIONS, {**GOOD, "logit_bias": {"99999": 1}}, "logit_bias", "outside"),
    "bias key": (COMPLETIONS, {**GOOD, "logit_bias": {"the": 1}}, "logit_bias", "token id"),
    "long stop": (COMPLETIONS, {**GOOD, "stop": "x" * 100_000}, "stop", "1024"),
    "many stops": (COMPLETIONS, {**GOOD, "stop": ["x"] * 17}, "stop", "16"),
    "empty stop": (COMPLETIONS, {**GOOD, "stop": ""}, "stop", "1 character"),
    "temperature": (COMPLETIONS, {**GOOD, "temperature": -1}, "temperature", "temperature"),
    "temperature text": (COMPLETIONS, {**GOOD, "temperature": "1"}, "temperature", "number"),
    "top_p": (COMPLETIONS, {**GOOD, "temperature": 1, "top_p": 1.5}, "top_p", "top_p"),
    "filters of a greedy request": (COMPLETIONS, {**GOOD, "min_p": -1.0}, "min_p", "from 0 to 1"),
    "max_tokens": (COMPLETIONS, {**GOOD, "max_tokens": -1}, "max_tokens", "0"),
    "penalty": (COMPLETIONS, {**GOOD, "frequency_penalty": 3}, "frequency_penalty", "from -2 to 2"),
    "empty prompt": (COMPLETIONS, {**GOOD, "prompt": ""}, "prompt", "empty"),
    "no prompt": (COMPLETIONS, {"max_tokens": 2}, "prompt", "missing"),
    "foreign id": (COMPLETIONS, {**GOOD, "prompt": [99999]}, "prompt", "outside the vocabulary"),
    "long prompt": (COMPLETIONS, {**GOOD, "prompt": "word " * 1000}, "prompt", "max_model_len"),
    "million words": (COMPLETIONS, {**GOOD, "prompt": "a " * 1_000_000}, "prompt", "max_model_len"),
    "million ids": (COMPLETIONS, {**GOOD, "prompt": [5] * 1_000_000}, "prompt", "1000000 tokens"),
    "no messages": (CHATS, {**CHAT, "messages": []}, "messages", "give at least 1 entry"),
    "bad role": (CHATS, {**CHAT, "messages": [{"role": "usr", "content": "a"}]}, "messages", "user"),
    "image": (
        CHATS,
        {**CHAT, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        None,
        "messages[0].content",
    ),
    "best_of": (COMPLETIONS, {**GOOD, "best_of": 4}, "best_of", "not supported"),
    "echo logprobs": (COMPLETIONS, {**GOOD, "echo": True, "logprobs": 1}, "echo", "not supported"),
    "two tools of one name": (CHATS, {**CHAT, "tools": [TOOL, TOOL]}, "tools", "'f' twice"),
    "no such tool": (
        CHATS,
        {**CHAT, "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice",
        "not in tools",
    ),
    "choice without tools": (CHATS, {**CHAT, "tool_choice": "required"}, "tool_choice", "without tools"),
    "functions": (CHATS, {**CHAT, "functions": []}, "functions", "use tools"),
    "bad schema": (
        CHATS,
        {**CHAT, "response_format": schema({"type": "nonsense"})},
        "response_format",
        "cannot",
    ),
    "outside schema": (
        CHATS,
        {**CHAT, "response_format": schema({"$ref": "http://127.0.0.1/x"})},
        "response_format",
        "cannot",
    ),
    "deep schema": (CHATS, {**CHAT, "response_format": schema(nested(400))}, "response_format", ""),
    "schema without one": (
        CHATS,
        {**CHAT, "response_format": {"type": "json_schema"}},
        "response_format",
        "goes with",
    ),
    "two grammars": (
        CHATS,
        {**CHAT, "response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
        "structured_outputs.regex",
        "contradict",
    ),
    "bad regex": (
        COMPLETIONS,
        {**GOOD, "structured_outputs": {"regex": "((("}},
        "structured_outputs.regex",
        "cannot",
    ),
    "deep regex": (
        COMPLETIONS,
        {**GOOD, "structured_outputs": {"regex": "(" * 30_000 + ")" * 30_000}},
        "structured_outputs.regex",
        "cannot",
    ),
    "long regex": (
        COMPLETIONS,
        {**GOOD, "structured_outputs": {"regex": "a" * 100_000}},
        "structured_outputs.regex",
        "at most",
    ),
    "grammar and ignore_eos": (
        COMPLETIONS,
        {**GOOD, "ignore_eos": True, "structured_outputs": {"regex": "a"}},
        "ignore_eos",
        "contradicts a grammar",
    ),
    "response_format here": (
        COMPLETIONS,
        {**GOOD, "response_format": {"type": "text"}},
        "response_format",
        "chats",
    ),
    "suffix": (COMPLETIONS, {**GOOD, "suffix": "end"}, "suffix", "not supported"),
    "store": (CHATS, {**CHAT, "store": True}, "store", "nothing is stored"),
    "stream options": (
        COMPLETIONS,
        {**GOOD, "stream_options": {"include_usage": True}},
        "stream_options",
        "stream=true",
    ),
    "a file as drafter": (
        COMPLETIONS,
        {**GOOD, "speculative": {"drafter": "draft_model:/etc/passwd"}},
        "speculative.drafter",
        "cannot be chosen",
    ),
    "drafter": (
        COMPLETIONS,
        {**GOOD, "speculative": {"drafter": "ngrams"}},
        "speculative.drafter",
        "did you mean 'ngram'",
    ),
    "off and on": (
        COMPLETIONS,
        {**GOOD, "speculative": {"enabled": False, "num_draft_tokens": 3}},
        "speculative.num_draft_tokens",
        "enabled=false",
    ),
    "two lengths": (CHATS, {**CHAT, "max_completion_tokens": 3}, "max_tokens", "old name"),
    "workload": (COMPLETIONS, {**GOOD, "workload": "a b\n"}, "workload", "workload"),
    "template": (
        CHATS,
        {**CHAT, "chat_template_kwargs": {"messages": []}},
        "chat_template_kwargs",
        "must not",
    ),
    "too many at once": (
        COMPLETIONS,
        {**GOOD, "temperature": 1, "prompt": ["a"] * 9, "n": 128},
        "n",
        "at once",
    ),
}


@pytest.mark.parametrize(("path", "body", "param", "message"), BAD_BODIES.values(), ids=BAD_BODIES)
def test_bad_parameters_are_named(
    served: Served, path: str, body: dict[str, Any], param: str | None, message: str
) -> None:
    answer = served.post(path, body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert message in error["message"]
    assert param is None or error["param"] == param
    assert len(answer.content) < 4000


RAW: dict[str, tuple[bytes, dict[str, str], int]] = {
    "not JSON": (b"{'a': 1}", JSON, 400),
    "no object": (b"[1, 2]", JSON, 400),
    "empty": (b"", JSON, 400),
    "deep": (b'{"prompt": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", JSON, 400),
    "deep objects": (b'{"prompt": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001, JSON, 400),
    "no UTF-8": (b'{"prompt": "\xff\xfe", "max_tokens": 2}', JSON, 400),
    "surrogate": (b'{"prompt": "\\ud800", "max_tokens": 2}', JSON, 400),
    "surrogate name": (b'{"prompt": "a", "\\ud800": 2}', JSON, 400),
    "NaN": (b'{"prompt": "a", "temperature": NaN}', JSON, 400),
    "infinite": (b'{"prompt": "a", "temperature": Infinity}', JSON, 400),
    "huge number": (b'{"prompt": "a", "max_tokens": ' + b"9" * 5000 + b"}", JSON, 400),
    "huge float": (b'{"prompt": "a", "temperature": 1e999}', JSON, 400),
    "form": (b"prompt=a", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
    "plain": (b'{"prompt": "a"}', {"Content-Type": "text/plain"}, 415),
    "no type": (b'{"prompt": "a"}', {}, 415),
}


@pytest.mark.parametrize(("content", "headers", "status"), RAW.values(), ids=RAW)
def test_bad_bodies(served: Served, content: bytes, headers: dict[str, str], status: int) -> None:
    with served.client() as client:
        answer = client.post(COMPLETIONS, content=content, headers=headers)
    assert answer.status_code == status, answer.text
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_hundred_megabytes(served: Served) -> None:
    """With the length announced, and in pieces without it: refused without being kept."""

    def pieces() -> Any:
        for _ in range(100):
            yield b" " * 1_000_000

    with served.client() as client:
        assert client.post(COMPLETIONS, content=b" " * 100_000_000, headers=JSON).status_code == 413
        assert client.post(COMPLETIONS, content=pieces(), headers=JSON).status_code == 413


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/static/../settings.py", "/static/%2e%2e/settings.py", "/nothing", "/v1/models/x"],
)
def test_paths_that_lead_nowhere(served: Served, path: str) -> None:
    host, port = urlsplit(served.url).hostname, urlsplit(served.url).port
    with socket.create_connection((host, port), 30) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404")
    assert json.loads(body)["error"]["type"] == "not_found_error"


def test_headers_cannot_be_injected(served: Served) -> None:
    """A request id is echoed only if it is a plain word; a bad one is replaced."""
    for given, kept in (("abc-1.2_3", True), ("a b", False), ("a\tX-Evil: 1", False), ("x" * 65, False)):
        answer = served.get("/health", headers={"X-Request-Id": given})
        assert (answer.headers["x-request-id"] == given) == kept
        assert "x-evil" not in answer.headers
    host, port = urlsplit(served.url).hostname, urlsplit(served.url).port
    with socket.create_connection((host, port), 30) as raw:
        raw.sendall(
            b"GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\rX-Evil: 1\r\nConnection: close\r\n\r\n"
        )
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400") or b"X-Evil" not in answer


def test_wrong_method_and_model(served: Served) -> None:
    answer = served.get(COMPLETIONS)
    assert answer.status_code == 405
    assert "POST" in answer.json()["error"]["message"]
    with served.client() as client:
        for method, path in (("PUT", COMPLETIONS), ("DELETE", "/health"), ("POST", "/v1/models")):
            assert client.request(method, path).status_code == 405, (method, path)
        assert client.post(COMPLETIONS).status_code == 400
    answer = served.post(COMPLETIONS, {**GOOD, "model": "tinny"})
    assert answer.status_code == 404
    assert "did you mean 'tiny'" in answer.json()["error"]["message"]
    assert served.post("/v1/embeddings", {"input": "a"}).status_code == 400


def test_a_client_that_reads_a_byte_a_second_holds_up_nobody(served: Served) -> None:
    """Megabytes wait for it, more than the sockets hold. The engine is done with it all the same, the others
    are answered, and when it goes nothing is left.
    """
    wide = {"n": 4, "logprobs": 20, "max_tokens": 700, "temperature": 1.0, "ignore_eos": True}
    with unread(served.url, COMPLETIONS, {**GOOD, **wide, "stream": True}) as raw:
        for _ in range(3):
            assert len(raw.recv(1)) == 1
            time.sleep(1.0)
            assert served.post(COMPLETIONS, GOOD).status_code == 200
        served.wait_until_idle(60)  # the engine does not wait for the reader
        (connection,) = [c for c in served.server.server_state.connections if c.flow.write_paused]
    end = time.monotonic() + 30
    while connection in served.server.server_state.connections:
        assert time.monotonic() < end, "a client that went away is still known"
        time.sleep(0.01)


def test_a_body_that_never_ends_is_given_up(served: Served) -> None:
    gate = served.server.config.app
    before = gate._settings
    from dataclasses import replace

    gate._settings = replace(before, body_seconds=0.3)
    try:
        with socket.create_connection((urlsplit(served.url).hostname, urlsplit(served.url).port), 30) as raw:
            raw.sendall(
                f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                "Content-Length: 100\r\n\r\n{".encode()
            )
            assert raw.recv(65536).startswith(b"HTTP/1.1 408")
    finally:
        gate._settings = before
