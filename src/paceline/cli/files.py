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
        raise _cannot_write(path, error) from error


def check_writable(path: Path | None) -> None:
    """Raise the ``ConfigError`` of :func:`write_text` now, before minutes of measuring. Leaves no file."""
    if path is None:
        return
    is_new = not path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot write {path}: {error.strerror or error}; choose another file")
