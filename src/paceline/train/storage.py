"""Files that exist whole or not at all, whatever interrupts the program: temporary name, sync, rename."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from paceline.errors import ConfigError

PART = ".part"
"""Ending of a file that is still being written: never read, removed by the next run."""


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes the place of ``path`` when the block ends without an error."""
    part = path.with_name(path.name + PART)
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where the system lets folders be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as JSON, whole or not at all."""
    with whole_file(path) as file:
        file.write((json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Return what :func:`write_json` wrote. Raises ``ConfigError`` for a damaged file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read ({error}): delete its folder and run again") from error


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number (from 1) and text of each line that is not blank. Raises ``ConfigError``."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be read: {reason}") from error


def drop_torn_line(path: Path) -> None:
    """Cut a last line without its end off a JSONL file: the program was stopped while it was written."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        end = size
        while end:
            start = max(0, end - (1 << 16))
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end != size:
            file.truncate(end)


def parse_json(text: str) -> Any:
    """Return a JSON value. Raises ``ValueError``, also for what nests too deep or is half a character (a lone
    surrogate, which no file and no tokenizer takes)."""
    try:
        value = json.loads(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except UnicodeEncodeError as error:
        raise ValueError(f"it holds half a character, {error.object[error.start]!r}") from error
    return value


def append_lines(path: Path, rows: Iterable[Any]) -> None:
    """Append JSON rows and sync; on an error (a full disk) the file is cut back to what it held."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    # Unbuffered: closing a buffered file writes what a full disk refused once more, behind the cut.
    with path.open("ab", buffering=0) as file:
        start = file.seek(0, os.SEEK_END)
        rest = memoryview(text)
        try:
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except BaseException:
            os.ftruncate(file.fileno(), start)
            raise


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(value: Any) -> str:
    """Return the SHA-256 in hex of a JSON value, the same for equal values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk that ``folder`` lies on, or will lie on."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
