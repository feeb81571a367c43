"""Frozen settings of a server."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.config import Settings, check_bool, check_choice, check_float, check_int
from paceline.errors import ConfigError

METRICS_COMPAT = ("none", "vllm")


@dataclass(frozen=True, slots=True)
class ServerSettings(Settings):
    """``model_names``: what requests may call the model; the first one is what replies say. ``api_keys``:
    any of them opens the server; none leaves it open. ``max_queue``: requests beyond those that run, each
    completion of each prompt counted; past it, 429. ``max_queue_time``, ``request_timeout``: seconds a
    request may wait and take, unless it asks for less. ``drain_seconds``: what running requests get to end
    when the server stops. ``stuck_seconds``: a step longer than this makes ``/health`` unhealthy.
    ``max_body_bytes``, ``body_seconds``: size of a request's body and time to send it. ``metrics_compat``:
    ``vllm`` gives each metric also under vLLM's name. ``log_prompts``: put prompts and replies into the log.
    ``allow_origins``: web pages that may call the server (CORS).
    """

    model_names: tuple[str, ...]
    api_keys: tuple[str, ...] = ()
    max_queue: int = 256
    max_queue_time: float | None = None
    request_timeout: float | None = None
    drain_seconds: float = 30.0
    stuck_seconds: float = 60.0
    max_body_bytes: int = 4 * 1024 * 1024
    body_seconds: float = 30.0
    metrics_compat: str = "none"
    log_prompts: bool = False
    allow_origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.model_names or not all(self.model_names):
            raise ConfigError("model_names is empty: give the name that requests use for the model")
        for key in self.api_keys:
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise ConfigError("an API key is empty or holds spaces or other than ASCII: give another one")
        check_int("max_queue", self.max_queue, 0)
        for name in ("max_queue_time", "request_timeout"):
            if getattr(self, name) is not None:
                check_float(name, getattr(self, name), 0.001, math.inf)
        check_float("drain_seconds", self.drain_seconds, 0.0, 3600.0)
        check_float("stuck_seconds", self.stuck_seconds, 0.1, 3600.0)
        check_int("max_body_bytes", self.max_body_bytes, 1024)
        check_float("body_seconds", self.body_seconds, 0.1, 3600.0)
        check_choice("metrics_compat", self.metrics_compat, METRICS_COMPAT)
        check_bool("log_prompts", self.log_prompts)
