"""Writing result files, so that a half-written one never lies where a whole one is expected."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from paceline.errors import ConfigError


def write_text(path: Path, text: str) -> None:
    """Write ``text``, making the folder if need be: all of it, or the file stays as it was.

    The text goes to a neighbour first, which then takes the file's place. Raises ``ConfigError`` when that
    cannot be done.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a pipe or a terminal has no whole to keep
            path.write_text(text, encoding="utf-8")
            return
        _replace(path.resolve(), text)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp lets nobody else read; the file gets the rights that an ordinary one would have.
        part.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


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
