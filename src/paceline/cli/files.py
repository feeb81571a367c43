"""Writing result files."""

from __future__ import annotations

from pathlib import Path

from paceline.errors import ConfigError


def write_text(path: Path, text: str) -> None:
    """Write ``text``, making the folder if need be. Raises ``ConfigError`` when that cannot be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}; choose another file") from error
