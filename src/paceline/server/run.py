"""Serve until told to stop; then let running requests end, within bounds, and leave with status 0."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from paceline.server.app import create_app
from paceline.server.line import LineProtocol
from paceline.server.service import Service
from paceline.server.settings import ServerSettings

if TYPE_CHECKING:
    from paceline.llm import LLM

SWITCH_SECONDS = 0.0005
"""How long the event loop and the engine's thread may keep the interpreter from each other. Python's 5 ms is
as long as a step: a finished forward would wait for it whenever a request is being parsed.
"""
KEEP_ALIVE_SECONDS = 75


class DrainingServer(uvicorn.Server):
    """uvicorn's server, but a signal that was obeyed is not raised again: a drained server ends with 0."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():  # which alone can have handlers
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; a second Ctrl-C waits for nobody."""
        self.service.draining = True
        super().handle_exit(sig, frame)


def make_server(llm: LLM, settings: ServerSettings, host: str, port: int) -> DrainingServer:
    """Return a server that can be run. ``port`` 0 takes a free one."""
    app, service = create_app(llm, settings)
    config = uvicorn.Config(
        app,
        http=LineProtocol,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # anyone could say they are someone else
        lifespan="on",
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
    )
    return DrainingServer(config, service)


def serve(llm: LLM, settings: ServerSettings, host: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises ``SystemExit`` when the address cannot be had."""
    sys.setswitchinterval(SWITCH_SECONDS)
    make_server(llm, settings, host, port).run()
