"""Download a file: resumed after a broken line, checked, and put in place whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO
from urllib.error import HTTPError

from paceline.errors import DownloadError
from paceline.models.package_index import IndexSettings, open_url, reason

CHUNK_BYTES = 1 << 20
MAX_FAILURES = 5
"""Failures in a row, without a byte gained between them, after which a download gives up."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, the bytes done and the bytes in all (0 when unknown)."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """What to fetch. ``sha256`` must be met; ``size`` in bytes, 0 when the server alone knows it."""

    url: str
    sha256: str
    size: int


def download(remote: RemoteFile, target: Path, settings: IndexSettings, progress: Progress) -> None:
    """Fetch ``remote`` to ``target``, by way of ``target.part``.

    After a broken connection the part is resumed at once, up to ``MAX_FAILURES`` times without a gain, and
    otherwise kept for the next call. A part whose checksum is wrong, or that fills the disk, is removed.
    Raises ``DownloadError``; ``target`` exists only complete and correct.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    check_free_space(target.parent, remote.size - (part.stat().st_size if part.exists() else 0))
    _fetch_with_retries(remote, part, settings, progress)
    if sha256_of(part) != remote.sha256:
        part.unlink()
        raise DownloadError(
            f"{target.name} arrived with a wrong checksum and was removed: try again; if it happens twice, "
            "the index or a proxy on the way is changing the file"
        )
    part.replace(target)


def _fetch_with_retries(remote: RemoteFile, part: Path, settings: IndexSettings, progress: Progress) -> None:
    failures = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            if _fetch_rest(remote, part, before, settings, progress):
                return
            cause = "the connection ended early"
        except (OSError, HTTPException) as error:
            _refuse_hopeless(error, part)
            cause = reason(error)
        gained = part.exists() and part.stat().st_size > before
        failures = 0 if gained else failures + 1
        if failures >= MAX_FAILURES:
            raise DownloadError(
                f"downloading {part.name.removesuffix('.part')} failed: {cause}. What has arrived is kept: "
                "run the same command again to go on from there"
            )
        time.sleep(0.2 * 2**failures)


def _fetch_rest(
    remote: RemoteFile, part: Path, have: int, settings: IndexSettings, progress: Progress
) -> bool:
    """Append what is missing behind the first ``have`` bytes; return whether the file is complete."""
    if remote.size and have == remote.size:
        return True
    headers = {"Range": f"bytes={have}-"} if have else {}
    try:
        response = open_url(remote.url, settings, headers)
    except HTTPError as error:
        if error.code == 416:  # there is nothing behind what we have: complete, or not the file we think
            error.close()
            return True
        raise
    with response, part.open("ab") as file:
        if have and response.status != 206:  # type: ignore[attr-defined]
            file.truncate(0)
            have = 0
        length = response.headers.get("Content-Length")  # type: ignore[attr-defined]
        total = have + int(length) if length else remote.size
        copied = have + copy(response, file, lambda done: progress("downloading", have + done, total))
    return not total or copied >= total


def copy(source: IO[bytes], target: IO[bytes], on_bytes: Callable[[int], None]) -> int:
    """Copy to the end in pieces; return the bytes copied."""
    done = 0
    while piece := source.read(CHUNK_BYTES):
        target.write(piece)
        done += len(piece)
        on_bytes(done)
    return done


def _refuse_hopeless(error: BaseException, part: Path) -> None:
    """Turn an error that trying again cannot mend into a ``DownloadError``."""
    if isinstance(error, HTTPError) and error.code < 500 and error.code not in (408, 429):
        raise DownloadError(
            f"downloading {part.name.removesuffix('.part')} failed: the server {reason(error)}"
        ) from error
    if is_disk_error(error):
        part.unlink(missing_ok=True)
        raise disk_error(error, part.parent) from error


def is_disk_error(error: BaseException) -> bool:
    """Return whether the error is about the local disk rather than the network."""
    numbers = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG, errno.EIO)
    return isinstance(error, OSError) and error.errno in numbers and not isinstance(error, HTTPError)


def disk_error(error: BaseException, folder: Path) -> DownloadError:
    """Return the error for a disk that is full or cannot be written."""
    return DownloadError(
        f"cannot write to {folder}: {getattr(error, 'strerror', None) or error}. Nothing half-written was "
        "left; free some space, or set PACELINE_CACHE to a folder on another disk"
    )


def check_free_space(folder: Path, needed: int) -> None:
    """Raise ``DownloadError`` when the disk of ``folder`` has fewer than ``needed`` bytes left."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DownloadError(
            f"{folder} has {free / 1e6:.0f} MB free, but {needed / 1e6:.0f} MB are needed: free some space, "
            "or set PACELINE_CACHE to a folder on another disk"
        )


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
