"""A real server (uvicorn on a thread, a free port) around an LLM, and clients for it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from paceline import LLM
from paceline.server.run import DrainingServer, make_server
from paceline.server.service import Service
from paceline.server.settings import ServerSettings
from support.tiny_models import write_tiny_gguf

NAME = "tiny"


@dataclass
class Served:
    """``llm``: the one being served; its engine belongs to the server's thread while it runs."""

    llm: LLM
    server: DrainingServer
    service: Service
    url: str

    def client(self, **settings: Any) -> httpx2.Client:
        return httpx2.Client(**{"base_url": self.url, "timeout": 120.0, "trust_env": False, **settings})

    def post(self, path: str, body: Any, **settings: Any) -> httpx2.Response:
        with self.client(**settings) as client:
            return client.post(path, json=body)

    def get(self, path: str, **settings: Any) -> httpx2.Response:
        with self.client(**settings) as client:
            return client.get(path)

    def wait_until_idle(self, seconds: float = 60.0) -> None:
        """Wait until no request holds anything; fail when that does not come to pass."""
        end = time.monotonic() + seconds
        pool = self.llm.engine.pool
        while self.service.num_open or self.llm.engine.has_unfinished or pool.num_free < pool.num_blocks:
            assert time.monotonic() < end, "the server did not become idle"
            time.sleep(0.01)


class Brake:
    """Slows the forwards of an LLM down, or makes them fail."""

    def __init__(self, llm: LLM) -> None:
        self.seconds = 0.0
        self.error: Exception | None = None
        self.go = threading.Event()
        self.go.set()
        self._forward = llm.executor.forward
        llm.executor.forward = self.forward  # type: ignore[method-assign]

    def forward(self, batch: Any) -> Any:
        time.sleep(self.seconds)
        assert self.go.wait(120)
        if self.error is not None:
            raise self.error
        return self._forward(batch)


@contextmanager
def unread(url: str, path: str, body: dict[str, Any]) -> Iterator[socket.socket]:
    """Ask, through a socket that takes in a kilobyte and then makes the server wait for its reader."""
    data, address = json.dumps(body).encode(), urlsplit(url)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    with socket.socket() as raw:
        raw.settimeout(60)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)  # before it connects, or it has no effect
        raw.connect((address.hostname, address.port))
        raw.sendall(head.encode() + b"\r\n\r\n" + data)
        yield raw


def write_served_model(folder: Path) -> Path:
    """Write the model that the tests serve."""
    return write_tiny_gguf(folder / "tiny.gguf", "llama", "q8_0", seed=3)


@contextmanager
def serving(llm: LLM, **settings: Any) -> Iterator[Served]:
    """Run a server around ``llm``; it is drained at the end."""
    chosen = ServerSettings(**{"model_names": (NAME,), **settings})
    server = make_server(llm, chosen, "127.0.0.1", 0)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    end = time.monotonic() + 60
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < end, "the server did not start in time"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Served(llm, server, server.service, f"http://127.0.0.1:{port}")
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server did not stop"
