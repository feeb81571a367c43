"""Goodput: replies per second that meet a stated objective, as vLLM and guidellm count it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from paceline.errors import ConfigError, nearest_name

MEASURES = {"ttft": "ttft_s", "tpot": "tpot_s", "e2e": "e2e_s"}
_UNITS = {"ms": 1e-3, "s": 1.0}
_LIMIT = re.compile(r"([0-9.]+)\s*(ms|s)")


@dataclass(frozen=True, slots=True)
class Objective:
    """The most seconds each measure of a reply may take. A reply meets it when it meets every one."""

    limits: Mapping[str, float]

    def is_met(self, measured: Mapping[str, float | None]) -> bool:
        """Return whether a reply is good. What it does not have (the TPOT of one token) cannot be late."""
        for name, limit in self.limits.items():
            value = measured[name]
            if value is not None and value > limit:
                return False
        return True

    def __str__(self) -> str:
        short = {key: name for name, key in MEASURES.items()}
        return ", ".join(f"{short[key]} ≤ {1e3 * limit:g} ms" for key, limit in self.limits.items())


def parse_objective(text: str) -> Objective:
    """Return the objective of ``ttft:200ms,tpot:50ms,e2e:2s``. Raises ``ConfigError``."""
    limits: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = (piece.strip() for piece in part.partition(":"))
        if name not in MEASURES:
            near = nearest_name(name, MEASURES)
            raise ConfigError(f"--goodput {text!r}: {name!r} is not one of {', '.join(MEASURES)}{near}")
        match = _LIMIT.fullmatch(value)
        seconds = _number(match[1]) * _UNITS[match[2]] if match else math.nan
        if not seconds > 0:
            raise ConfigError(f"--goodput {text!r}: {part!r} needs a time with its unit, as in {name}:200ms")
        if MEASURES[name] in limits:
            raise ConfigError(f"--goodput {text!r}: {name} stands there twice")
        limits[MEASURES[name]] = seconds
    if not limits:
        raise ConfigError(f"--goodput {text!r} is empty: give limits, as in ttft:200ms,tpot:50ms")
    return Objective(limits)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
