"""What a client says reaches no other client, no log and no header; keys are compared in constant time."""

from __future__ import annotations

import hmac
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from paceline import LLM
from paceline.server import gate, logs
from support.served import Served, serving

KEYS = ("correct-horse-battery", "another-key-of-someone", "a-third-key-of-a-third")
SECRET = "xylophone-quagmire"
COMPLETIONS = "/v1/completions"
GOOD: dict[str, Any] = {"prompt": "the rest", "max_tokens": 4, "temperature": 0}


@pytest.fixture(scope="module")
def served(served_model: Path) -> Iterator[Served]:
    with serving(LLM(served_model, "ngram", threads=1), api_keys=KEYS) as served:
        yield served


def bearer(key: str) -> dict[str, dict[str, str]]:
    return {"headers": {"Authorization": f"Bearer {key}"}}


def raw_answer(served: Served, request: bytes) -> bytes:
    """Send bytes as they are; return all that comes back."""
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname, address.port), 30) as raw:
        raw.sendall(request)
        return b"".join(iter(lambda: raw.recv(65536), b""))


# ---- keys ----


@pytest.mark.parametrize(
    "given", [KEYS[0], KEYS[2], KEYS[0][:-1], "x", "z" * 5000], ids=["first", "last", "near", "short", "long"]
)
def test_every_key_is_compared_in_constant_time(
    served: Served, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, by ``hmac.compare_digest``, and all of them, whichever fits: ``==`` or an early end would tell
    by the time an answer takes how much of a key was right, or which one.
    """
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    class Recorder:
        compare_digest = staticmethod(compare)

    monkeypatch.setattr(gate, "hmac", Recorder)
    status = served.get("/v1/models", **bearer(given)).status_code
    assert status == (200 if given in KEYS else 401)
    assert compared == [(key.encode(), given.encode()) for key in KEYS]


def test_without_a_key_only_what_holds_no_data_answers(served: Served) -> None:
    described = served.get("/openapi.json").json()["paths"]
    paths = {path.replace("{name}", "tiny"): list(methods) for path, methods in described.items()}
    paths |= {
        path: ["get"] for path in ("/", "/docs", "/openapi.json", "/static/page.js", "/static/page.css")
    }
    with served.client() as client:
        opened = {
            path
            for path, methods in paths.items()
            for method in methods
            if client.request(method, path, json={}).status_code != 401
        }
    own = {"/", "/docs", "/openapi.json", "/static/page.js", "/static/page.css"}
    assert opened == own | {"/health", "/ready"}


def test_nobody_can_say_they_are_someone_else(served_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose turn it is goes by the key, else the address of the socket: no header changes it."""
    seen: list[str] = []
    with serving(LLM(served_model, "none", threads=1)) as served:
        honest = served.service.open

        async def watched(job_id: str, requests: Any, terms: Any, arrived: float) -> Any:
            seen.append(terms.client)
            return await honest(job_id, requests, terms, arrived)

        monkeypatch.setattr(served.service, "open", watched)
        headers = {"X-Forwarded-For": "10.9.8.7", "Forwarded": "for=10.9.8.7", "X-Real-IP": "10.9.8.7"}
        assert served.post(COMPLETIONS, GOOD, headers=headers).status_code == 200
        assert served.post(COMPLETIONS, {**GOOD, "user": "ada"}).status_code == 200
    assert seen == ["127.0.0.1", "ada"]


def test_the_key_of_one_is_not_told_to_another(served: Served) -> None:
    for path in ("/v1/config", "/metrics", "/v1/models", "/openapi.json", "/docs", "/"):
        text = served.get(path, **bearer(KEYS[0])).text
        assert not any(key in text for key in KEYS), path


# ---- other people's words ----

PROBES: dict[str, tuple[str, bytes]] = {
    "unknown parameter": (COMPLETIONS, b'{"prompt": "a", "promtp": 1}'),
    "wrong type": (COMPLETIONS, b'{"prompt": {"a": 1}}'),
    "no JSON": (COMPLETIONS, b'{"prompt": '),
    "deep": (COMPLETIONS, b'{"prompt": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"),
    "no UTF-8": (COMPLETIONS, b'{"prompt": "\xff\xfe"}'),
    "foreign id": (COMPLETIONS, b'{"prompt": [99999]}'),
    "too long": (COMPLETIONS, json.dumps({"prompt": "word " * 2000}).encode()),
    "a million tokens of text": (COMPLETIONS, json.dumps({"prompt": "a " * 1_000_000}).encode()),
    "too large": (COMPLETIONS, json.dumps({"prompt": "a" * 5_000_000}).encode()),
    "bad grammar": (COMPLETIONS, b'{"prompt": "a", "structured_outputs": {"regex": "(("}}'),
    "no model": (COMPLETIONS, b'{"prompt": "a", "model": "other"}'),
    "bad chat": ("/v1/chat/completions", b'{"messages": [{"role": "user", "contents": "a"}]}'),
    "tokens": ("/detokenize", b'{"tokens": [-1]}'),
    "embeddings": ("/v1/embeddings", b'{"input": "a"}'),
    "no path": ("/v1/nothing", b"{}"),
}


def test_errors_tell_nothing_of_the_requests_beside_them(served: Served) -> None:
    """While a stream with a secret in its prompt, user and workload runs, every kind of error is provoked."""
    asked = {**GOOD, "prompt": f"{SECRET} again {SECRET} again", "max_tokens": 600, "ignore_eos": True}
    asked |= {"user": SECRET, "workload": SECRET, "echo": True, "stream": True}
    kept: list[str] = []

    def read() -> None:
        kept.append(served.post(COMPLETIONS, asked, **bearer(KEYS[1])).text)

    reader = threading.Thread(target=read)
    reader.start()
    while not served.service.num_open:
        time.sleep(0.001)
    headers = {**bearer(KEYS[0])["headers"], "Content-Type": "application/json"}
    with served.client() as client:
        for name, (path, body) in PROBES.items():
            answer = client.post(path, content=body, headers=headers)
            assert 400 <= answer.status_code < 500, (name, answer.text)
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}, name
            told = answer.text + str(answer.headers)
            assert SECRET not in told and "xylo" not in told, name
            assert not any(key in told for key in KEYS), name
            assert "Traceback" not in told and "/src/" not in told, name
            assert client.post(COMPLETIONS, json=GOOD, headers=headers).status_code == 200, name
    reader.join()
    assert SECRET in kept[0], "the stream itself says it"
    assert kept[0].endswith("data: [DONE]\n\n")


# ---- what is written down ----


def lines_of(caplog: pytest.LogCaptureFixture, form: logging.Formatter) -> list[str]:
    names = ("paceline.server.access", "paceline.server")
    return [form.format(record) for record in caplog.records if record.name in names]


@pytest.mark.parametrize("form", [logs.JsonFormatter(), logs.TextFormatter()], ids=["json", "text"])
def test_nobody_can_write_a_line_of_the_log(
    served: Served, form: logging.Formatter, caplog: pytest.LogCaptureFixture
) -> None:
    """Line ends and control characters in a path or an id stay inside the entry they belong to."""
    evil = "/v1/%0a%7b%22level%22%3a%22error%22%7d%0d%0a%1b[31m"
    with caplog.at_level(logging.INFO, logger="paceline.server.access"):
        raw_answer(served, f"GET {evil} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        served.get("/v1/models", headers={**bearer(KEYS[0])["headers"], "X-Request-Id": "a b\t{}"})
        end = time.monotonic() + 30
        while len(lines := lines_of(caplog, form)) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
    for line in lines:
        assert "\n" not in line and "\r" not in line and "\x1b" not in line
        assert not any(key in line for key in KEYS)
        if isinstance(form, logs.JsonFormatter):
            assert json.loads(line)["level"] == "info"


def test_prompts_are_logged_only_on_demand(served_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    body = {**GOOD, "prompt": SECRET}
    for wanted in (False, True):
        caplog.clear()
        llm = LLM(served_model, "none", threads=1)
        with (
            serving(llm, log_prompts=wanted) as served,
            caplog.at_level(logging.INFO, logger="paceline"),
        ):
            for path in (COMPLETIONS, "/tokenize"):
                served.post(path, {"prompt": SECRET} if path == "/tokenize" else body)
            served.post(COMPLETIONS, {**body, "top_p": SECRET})
        form = logs.JsonFormatter()
        told = "\n".join(form.format(record) for record in caplog.records)
        assert '"status": 200' in told
        assert (SECRET in told) == wanted


# ---- headers and paths ----


@pytest.mark.parametrize(
    "header",
    [
        b"X-Request-Id: a\r\n Set-Cookie: b=c",
        b"X-Request-Id: a\nSet-Cookie: b=c",
        b"X-Request-Id: a\rSet-Cookie: b=c",
        b"X-Request-Id: a%0d%0aSet-Cookie: b=c",
        b"X-Request-Id: a\xc4\x8d\xc4\x8aSet-Cookie: b=c",
        b"X-Request-Id: a\x00Set-Cookie: b=c",
    ],
    ids=["folded", "LF", "CR", "encoded", "low bytes of CRLF", "NUL"],
)
def test_no_header_comes_back_that_was_put_into_another(served: Served, header: bytes) -> None:
    answer = raw_answer(
        served, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + header + b"\r\n\r\n"
    )
    head = answer.partition(b"\r\n\r\n")[0]
    assert head.split()[1] in (b"200", b"400")
    assert b"set-cookie" not in head.lower()
    assert head.lower().count(b"x-request-id:") == (head.split()[1] == b"200")


@pytest.mark.parametrize(
    "path",
    [
        "/static/..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/static/%2e%2e%2f%2e%2e%2fsettings.py",
        "/static/%252e%252e%252fsettings.py",
        "/static/....//....//etc/passwd",
        "/static//etc/passwd",
        "/static/..\\..\\settings.py",
        "/static/page.js%00.css",
        "/static/index.html",
        "//etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/static/",
    ],
)
def test_only_the_files_of_the_page_are_given(served: Served, path: str) -> None:
    request = (
        f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEYS[0]}\r\nConnection: close\r\n\r\n"
    )
    head, _, body = raw_answer(served, request.encode()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404"), head
    assert json.loads(body)["error"]["type"] == "not_found_error"
    assert b"root:" not in body
    assert served.get("/static/page.js").status_code == 200
