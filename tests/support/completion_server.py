"""A small server in this process that answers whole completions in OpenAI's form, as it is told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Spoken:
    """A reply: token texts, ids and log-probabilities. ``rivals``: of other tokens, by position and text."""

    texts: Sequence[str]
    ids: Sequence[int]
    logprobs: Sequence[float]
    rivals: dict[int, dict[str, float]] = field(default_factory=dict)
    finish_reason: str = "length"

    def choice(self, form: str, with_logprobs: bool) -> dict[str, Any]:
        """Return it as a choice: ``vllm`` tells ids apart, ``llama.cpp`` among the log-probabilities."""
        entries = [
            {
                "token": text,
                "logprob": logprob,
                "top_logprobs": [{"token": text, "logprob": logprob}]
                + [{"token": key, "logprob": value} for key, value in self.rivals.get(i, {}).items()],
                **({"id": token} if form == "llama.cpp" else {}),
            }
            for i, (text, token, logprob) in enumerate(zip(self.texts, self.ids, self.logprobs, strict=True))
        ]
        choice: dict[str, Any] = {
            "index": 0,
            "finish_reason": self.finish_reason,
            "message": {"role": "assistant", "content": "".join(self.texts)},
        }
        if with_logprobs:
            choice["logprobs"] = {"content": entries}
        if form == "vllm":
            choice["token_ids"] = list(self.ids)
        return choice

    def old_choice(self) -> dict[str, Any]:
        """Return it in the form of ``/v1/completions``."""
        tops = [
            {text: logprob, **self.rivals.get(i, {})}
            for i, (text, logprob) in enumerate(zip(self.texts, self.logprobs, strict=True))
        ]
        logprobs = {"tokens": list(self.texts), "token_logprobs": list(self.logprobs), "top_logprobs": tops}
        return {"text": "".join(self.texts), "finish_reason": self.finish_reason, "logprobs": logprobs}


@dataclass
class Told:
    """How the server behaves. ``reply(prompt text, number of this request)``: what it says."""

    reply: Callable[[str, int], Spoken]
    form: str = "vllm"
    refuses_logprobs: bool = False
    fault: str = ""
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    """Answers as its server was told."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep standard error clean."""

    def send(self, status: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        owner = {"vllm": "vllm", "llama.cpp": "llamacpp"}.get(self.told.form, "somebody")
        self.send(200, "application/json", json.dumps({"data": [{"id": "tiny", "owned_by": owner}]}))

    @property
    def told(self) -> Told:
        return self.server.told  # type: ignore[attr-defined, no-any-return]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        told, number = self.told, len(self.told.bodies)
        told.bodies.append(body)
        if told.fault == "html":
            self.send(200, "text/html", "<html>Please log in</html>")
        elif told.fault == "http_401":
            self.send(401, "application/json", '{"error": {"message": "Invalid API Key"}}')
        elif told.fault == "slow":
            time.sleep(1.0)
        elif told.fault == "other_json":
            self.send(200, "application/json", '{"reply": "hello"}')
        elif told.refuses_logprobs and "logprobs" in body:
            self.send(400, "application/json", '{"error": {"message": "logprobs are not supported"}}')
        else:
            self.answer(body, number)

    def answer(self, body: dict[str, Any], number: int) -> None:
        chat = "messages" in body
        spoken = self.told.reply(body["messages"][-1]["content"] if chat else body["prompt"], number)
        choice = spoken.choice(self.told.form, "logprobs" in body) if chat else spoken.old_choice()
        usage = {"prompt_tokens": 5, "completion_tokens": len(spoken.ids)}
        self.send(200, "application/json", json.dumps({"choices": [choice], "usage": usage}))


class Server(ThreadingHTTPServer):
    """Quiet where a client hangs up; that is part of the tests."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


@contextmanager
def completion_server(reply: Callable[[str, int], Spoken], **settings: Any) -> Iterator[Told]:
    """Serve on a free port of this machine until the block ends."""
    server = Server(("127.0.0.1", 0), Handler)
    told = Told(reply, **settings, url=f"http://127.0.0.1:{server.server_address[1]}")
    server.told = told  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
