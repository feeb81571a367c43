"""Typed access to GGUF metadata: a value of the wrong kind or out of range is one clear error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from paceline.errors import ModelFileError
from paceline.models.gguf_file import MetadataValue
from paceline.models.string_array import StringArray


class Metadata:
    """The metadata of one file; ``prefix`` (the architecture) stands before keys that start with a dot."""

    def __init__(self, values: Mapping[str, MetadataValue], path: Path, prefix: str = "") -> None:
        self.values = values
        self.path = path
        self.prefix = prefix

    def has(self, key: str) -> bool:
        """Return whether the file states ``key``."""
        return self._full(key) in self.values

    def integer(self, key: str, default: int | None = None, *, low: int = 1, high: int = 1 << 31) -> int:
        """Return an integer in ``low … high``; one repeated for every layer counts as one."""
        value = self._get(key, default)
        if isinstance(value, np.ndarray) and value.size and bool((value == value[0]).all()):
            value = value[0].item()
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, value, "an integer")
        if not low <= value <= high:
            raise self.wrong(key, value, f"an integer from {low} to {high}")
        return value

    def number(self, key: str, default: float | None = None, *, positive: bool = True) -> float:
        """Return a finite number (greater than zero unless ``positive`` is false)."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, value, "a number")
        if not math.isfinite(value) or (positive and value <= 0):
            raise self.wrong(key, value, "a finite positive number" if positive else "a finite number")
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, value, "a string")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, value, "true or false")
        return value

    def strings(self, key: str) -> StringArray:
        """Return an array of strings."""
        value = self._get(key, None)
        if not isinstance(value, StringArray):
            raise self.wrong(key, value, "an array of strings")
        return value

    def wrong(self, key: str, value: object, wanted: str) -> ModelFileError:
        """Return the error for a value that is not what was wanted."""
        shown = f"{value!r:.80}"
        return ModelFileError(f"{self.path} has {self._full(key)} = {shown}, but needs {wanted}")

    def _full(self, key: str) -> str:
        return self.prefix + key if key.startswith(".") else key

    def _get(self, key: str, default: MetadataValue | None) -> MetadataValue:
        value = self.values.get(self._full(key), default)
        if value is None:
            raise ModelFileError(
                f"{self.path} does not state {self._full(key)}: the file is incomplete, convert it again"
            )
        return value
