"""Where a head comes from: target, data, command, code. Stored in the head and in its card."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from paceline.train.storage import sha256_of

PACKAGES = ("paceline", "numpy", "torch", "tokenizers", "safetensors")
_WEIGHTS = ("*.safetensors", "*.bin", "config.json", "tokenizer.json")


@dataclass(frozen=True, slots=True)
class Provenance:
    """``commit``: of the checkout the code runs from, with ``+`` when files differ; empty when installed.
    ``data``: file name → SHA-256. ``target_sha256``: see :func:`target_digest`."""

    target: str
    target_sha256: str
    data: dict[str, str]
    command: str
    commit: str
    created: str
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def describe(target: str, target_sha256: str, data: Iterable[Path]) -> Provenance:
    """Return the facts of this process and these files."""
    installed = {name: next(iter(metadata.distributions(name=name)), None) for name in PACKAGES}
    return Provenance(
        target=target,
        target_sha256=target_sha256,
        data=_checksums(list(data)),
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        commit=code_commit(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={name: found.version for name, found in installed.items() if found is not None},
    )


def _checksums(paths: Sequence[Path]) -> dict[str, str]:
    """Return checksums by file name, by path where names are not unique."""
    names = [path.name for path in paths]
    return {path.name if names.count(path.name) == 1 else str(path): sha256_of(path) for path in paths}


def target_digest(path: Path, quant: str) -> str:
    """Return what identifies a target's weights: the SHA-256 of its file, or over the files of its folder.

    ``quant``: conversion at load, which makes other weights of the same folder.
    """
    if path.is_file():
        return sha256_of(path)
    digest = hashlib.sha256(quant.encode())
    for file in sorted({file for pattern in _WEIGHTS for file in path.glob(pattern)}):
        digest.update(f"{file.name} {sha256_of(file)}\n".encode())
    return digest.hexdigest()


def code_commit() -> str:
    """Return the commit of the checkout this file lies in, or an empty string."""
    folder = Path(__file__).resolve().parent
    if not any((parent / ".git").exists() for parent in folder.parents):
        return ""
    commands = (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
    try:
        head, changes = (
            subprocess.run(
                ["git", "-C", str(folder), *command], capture_output=True, text=True, check=True, timeout=10
            ).stdout.strip()
            for command in commands
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return head + ("+" if changes else "")
