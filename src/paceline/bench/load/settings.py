"""What a load run is asked to do."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from paceline.bench.load.arrivals import ARRIVALS, Arrivals
from paceline.bench.load.goodput import Objective
from paceline.config import check_choice, check_float, check_int
from paceline.errors import ConfigError

DEFAULT_REQUESTS = 100
_OURS = ("model", "messages", "prompt", "stream", "stream_options", "max_tokens", "temperature", "seed")


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """One run: a point for each of ``concurrency`` (closed loop) or of ``rates`` (open loop); not both.

    ``requests`` or ``duration`` (seconds in which requests start) bound each point; without either there
    are 100 requests. ``warm_up``: requests before each point that are not counted; ``None`` means as many as
    the point keeps in flight, and one in an open loop. ``timeout``: seconds for a whole reply. ``extra``: put
    into every request as it is. Raises ``ConfigError``.
    """

    concurrency: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    arrivals: Arrivals = "poisson"
    requests: int | None = None
    duration: float | None = None
    warm_up: int | None = None
    max_tokens: int = 128
    temperature: float = 0.0
    seed: int = 0
    timeout: float = 120.0
    objective: Objective | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    price_per_hour: float | None = None

    def __post_init__(self) -> None:
        if bool(self.concurrency) == bool(self.rates):
            raise ConfigError(
                "give either --concurrency N[,N…] (closed loop) or --rate R[,R…] (open loop), not "
                + ("both" if self.rates else "neither")
            )
        for count in self.concurrency:
            check_int("concurrency", count, 1, 4096)
        for rate in self.rates:
            check_float("rate", rate, 0.0, math.inf)
            if rate == 0:
                raise ConfigError("rate=0: give requests per second above 0")
        self._check_extent()
        check_choice("arrivals", self.arrivals, ARRIVALS)
        check_int("max_tokens", self.max_tokens, 1)
        check_float("temperature", self.temperature, 0.0, math.inf)
        check_int("seed", self.seed, 0)
        clash = [name for name in self.extra if name in _OURS]
        if clash:
            raise ConfigError(f"--extra-body sets {clash[0]!r}, which has an option of its own or is fixed")

    def _check_extent(self) -> None:
        if self.requests is not None and self.duration is not None:
            raise ConfigError("give --requests or --duration, not both: either bounds a point")
        if self.requests is not None:
            check_int("requests", self.requests, 1)
        for name in ("duration", "timeout", "price_per_hour"):
            value = getattr(self, name)
            if value is not None:
                check_float(name, value, 0.0, math.inf)
                if value == 0:
                    raise ConfigError(f"{name}=0: give a number above 0")
        if self.warm_up is not None:
            check_int("warm_up", self.warm_up, 0)

    @property
    def request_limit(self) -> int | None:
        """How many requests a point has; ``None`` when its duration decides."""
        return DEFAULT_REQUESTS if self.requests is None and self.duration is None else self.requests

    def to_json(self) -> dict[str, Any]:
        """Return plain data for ``json.dump``."""
        plain = {name: value for name, value in asdict(self).items() if name != "objective"}
        plain["requests"] = self.request_limit
        plain["objective"] = None if self.objective is None else dict(self.objective.limits)
        return plain


def parse_extra(text: str | None) -> dict[str, Any]:
    """Return the JSON object of ``--extra-body``. Raises ``ConfigError`` for anything else."""
    if text is None:
        return {}
    try:
        plain = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--extra-body {text!r} is not JSON: {error}") from error
    if not isinstance(plain, dict):
        raise ConfigError(f'--extra-body {text!r}: give a JSON object, as in {{"ignore_eos": true}}')
    return plain
