"""Reading drafter options: unknown fields and values out of range are errors that name the way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from paceline.errors import ConfigError, nearest_name

OptionsT = TypeVar("OptionsT")


def make_options(cls: type[OptionsT], values: Mapping[str, Any]) -> OptionsT:
    """Return the frozen options dataclass ``cls`` with ``values`` set.

    Raises ``ConfigError`` for a field ``cls`` does not have (naming the nearest one) or a value out of range.
    """
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            valid = f"valid: {', '.join(known)}" if known else "it takes none"
            raise ConfigError(f"{cls.__name__} has no option {name!r}{nearest_name(name, known)}; {valid}")
    return cls(**values)


def require_int(owner: str, name: str, value: object, low: int, high: int | None = None) -> None:
    """Raise ``ConfigError`` unless ``value`` is an integer in ``low … high``."""
    limit = f"an integer of at least {low}" if high is None else f"an integer from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{owner}: {name}={value!r} must be {limit}")
    if value < low or (high is not None and value > high):
        raise ConfigError(f"{owner}: {name}={value} must be {limit}")


def require_float(owner: str, name: str, value: object, low: float, high: float) -> None:
    """Raise ``ConfigError`` unless ``value`` is a number in ``low … high`` (NaN is not)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ConfigError(f"{owner}: {name}={value!r} must be a number from {low} to {high}")
