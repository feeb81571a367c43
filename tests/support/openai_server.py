"""A small server in this process that speaks OpenAI's streaming protocol in the dialects of real ones.

It generates nothing: every reply is the same words, in pieces of several tokens as under speculation. It can
be told to misbehave in the ways real servers and proxies do.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OWNERS = {"llama.cpp": "llamacpp", "vllm": "vllm", "paceline": "paceline", "other": "somebody"}
STALL = 6.0
"""Seconds of silence where a server is to be too slow; nobody waits for it to end."""
PIECES = (1, 3, 2, 4)
"""Tokens of each piece of text: ten in all, of which six were drafted and accepted."""


@dataclass
class Behaviour:
    """What is served and how. ``fault``: how completions go wrong; ``fail_from``: from which one on.

    ``models_fault`` does the same for the list of models: html, missing, unauthorized, bad_json, slow, empty.
    ``delay``: seconds before each piece. ``bodies``: what the requests held. ``in_flight_most``: the most
    requests that were ever open at once.
    """

    dialect: str = "vllm"
    fault: str = ""
    fail_from: int = 0
    models_fault: str = ""
    delay: float = 0.002
    strict: bool = False
    tells_usage: bool = True
    has_metrics: bool = True
    key: str = ""
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    in_flight: int = 0
    in_flight_most: int = 0
    drafts: int = 100
    lock: threading.Lock = field(default_factory=threading.Lock)


class Handler(BaseHTTPRequestHandler):
    """Answers for the behaviour that hangs on its server."""

    protocol_version = "HTTP/1.1"
    # Else small writes wait 40 ms for acknowledgements, which real servers avoid in the same way.
    disable_nagle_algorithm = True

    @property
    def behaviour(self) -> Behaviour:
        return self.server.behaviour  # type: ignore[attr-defined, no-any-return]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep standard error clean."""

    def send(self, status: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def version_string(self) -> str:
        return "llama.cpp" if self.behaviour.dialect == "llama.cpp" else "uvicorn"

    def refuse(self) -> bool:
        key = self.behaviour.key
        if key and self.headers.get("Authorization") != f"Bearer {key}":
            self.send(401, "application/json", '{"error": {"message": "Invalid API Key"}}')
            return True
        return False

    def do_GET(self) -> None:
        if self.path == "/metrics":
            text = metrics_text(self.behaviour) if self.behaviour.has_metrics else None
            self.send(404 if text is None else 200, "text/plain", text or "not found")
        elif self.path != "/v1/models":
            self.send(404, "application/json", '{"error": {"message": "File Not Found"}}')
        elif not self.refuse():
            self.list_models()

    def list_models(self) -> None:
        fault = self.behaviour.models_fault
        if fault == "html":
            self.send(200, "text/html", "<!doctype html><title>It works!</title>")
        elif fault == "missing":
            self.send(404, "text/plain", "nothing here")
        elif fault == "bad_json":
            self.send(200, "application/json", '{"data": [')
        elif fault == "other_json":
            self.send(200, "application/json", '{"status": "ok"}')
        elif fault == "empty":
            self.send(200, "application/json", '{"data": []}')
        else:
            time.sleep(STALL if fault == "slow" else 0.0)
            model = {"id": "tiny", "object": "model", "owned_by": OWNERS[self.behaviour.dialect]}
            self.send(200, "application/json", json.dumps({"object": "list", "data": [model]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        behaviour = self.behaviour
        if self.refuse():
            return
        with behaviour.lock:
            behaviour.bodies.append(body)
            number = len(behaviour.bodies) - 1
            behaviour.in_flight += 1
            behaviour.in_flight_most = max(behaviour.in_flight_most, behaviour.in_flight)
        try:
            fault = behaviour.fault if number >= behaviour.fail_from else ""
            self.answer(body, fault)
        finally:
            with behaviour.lock:
                behaviour.in_flight -= 1

    def answer(self, body: dict[str, Any], fault: str) -> None:
        if self.behaviour.strict and "stream_options" in body:
            self.send(400, "application/json", '{"error": {"message": "unknown field stream_options"}}')
        elif fault == "http_500":
            self.send(500, "application/json", '{"error": {"message": "out of memory"}}')
        elif fault == "http_404":
            self.send(404, "text/html", "<html><h1>404 Not Found</h1></html>")
        elif fault == "html":
            self.send(200, "text/html", "<html><body>Please log in</body></html>")
        elif fault == "not_a_stream":
            self.send(200, "application/json", '{"choices": [{"message": {"content": "all at once"}}]}')
        elif fault == "silent":
            time.sleep(STALL)
        else:
            self.stream(body, fault)

    def stream(self, body: dict[str, Any], fault: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events(self.behaviour, body, "/chat/" in self.path, fault):
            text = event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n"
            if text == "HANG UP":
                self.close_connection = True
                self.connection.close()
                return
            if text == "WAIT":
                time.sleep(STALL)
                continue
            data = text.encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


def events(behaviour: Behaviour, body: dict[str, Any], chat: bool, fault: str) -> Iterator[Any]:
    """Yield the events of one reply: JSON objects, or text that is sent as it is."""
    options = body.get("stream_options", {})
    count = 0
    if chat:
        yield {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    for number, tokens in enumerate(() if fault == "empty" else PIECES):
        time.sleep(behaviour.delay)
        if number == 2 and fault:
            yield from faulty(fault)
            if fault in ("cut", "half_event", "error_event"):
                return
        count += tokens
        text = " word" * tokens
        choice = {"delta": {"content": text}} if chat else {"text": text}
        event: dict[str, Any] = {"choices": [{"index": 0, "finish_reason": None, **choice}]}
        if options.get("continuous_usage_stats"):
            event["usage"] = usage(count)
        if body.get("timings_per_token"):
            event["timings"] = timings(count)
        yield event
    closing: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "text": "", "finish_reason": "length"}]}
    if behaviour.dialect == "llama.cpp":
        closing["timings"] = timings(count)
    yield closing
    if options.get("include_usage") and behaviour.tells_usage:
        yield {"choices": [], "usage": usage(count)}
    with behaviour.lock:
        behaviour.drafts += 3
    yield "data: [DONE]\n\n"


def faulty(fault: str) -> Iterator[Any]:
    """Yield what comes in the middle of a reply that goes wrong."""
    if fault == "bad_json":
        yield "data: {'choices': []}\n\n"
    elif fault == "hang_up":
        yield "HANG UP"
    elif fault == "stall":
        yield "WAIT"
    elif fault == "error_event":
        yield {"error": {"message": "the engine died", "code": 500}}
    elif fault == "comment":
        yield ": keep-alive\n\n"


def usage(count: int) -> dict[str, int]:
    return {"prompt_tokens": 7, "completion_tokens": count, "total_tokens": 7 + count}


def timings(count: int) -> dict[str, float]:
    drafted = {"draft_n": 9, "draft_n_accepted": 6} if count else {}
    return {"prompt_n": 7, "predicted_n": count, "predicted_ms": 4.0, **drafted}


def metrics_text(behaviour: Behaviour) -> str | None:
    """Return Prometheus text: each reply had three drafts of three tokens, two of them accepted."""
    if behaviour.dialect not in ("vllm", "paceline"):
        return "# TYPE llamacpp:tokens_predicted_total counter\nllamacpp:tokens_predicted_total 10\n"
    prefix, label = behaviour.dialect, 'engine="0",model_name="tiny"'
    lines = ["# HELP some help", f"{prefix}:num_requests_running{{{label}}} 1.0"]
    counts = {"drafts": 1, "draft_tokens": 3, "accepted_tokens": 2}
    for name, each in counts.items():
        lines.append(f"{prefix}:spec_decode_num_{name}_total{{{label}}} {float(each * behaviour.drafts)}")
        lines.append(f"{prefix}:spec_decode_num_{name}_created{{{label}}} 1.7e+09")
    for position in (0, 1):
        name = f"{prefix}:spec_decode_num_accepted_tokens_per_pos_total"
        lines.append(f'{name}{{{label},position="{position}"}} {float(behaviour.drafts)}')
    lines.append(f'{prefix}:spec_decode_num_accepted_tokens_per_pos_total{{{label},position="2"}} 0.0')
    return "\n".join(lines) + "\n"


class Server(ThreadingHTTPServer):
    """Quiet where a client hangs up; that is part of the tests."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


@contextmanager
def openai_server(**settings: Any) -> Iterator[Behaviour]:
    """Serve on a free port of this machine until the block ends."""
    server = Server(("127.0.0.1", 0), Handler)
    behaviour = Behaviour(**settings, url=f"http://127.0.0.1:{server.server_address[1]}")
    server.behaviour = behaviour  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield behaviour
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
