"""What a figure was measured with: code, machine and versions."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from paceline.profiling.machine import cpu_name

PACKAGES = ("paceline", "numpy", "tokenizers", "gguf")


@dataclass(frozen=True, slots=True)
class Environment:
    """``commit``: of the checkout the code runs from, with ``+`` when files differ; empty when installed."""

    commit: str
    cpu: str
    cores: int
    threads: int
    instruction_path: str
    system: str
    python: str
    versions: dict[str, str]


def describe_environment(threads: int, instruction_path: str) -> Environment:
    """Return the facts of this process; the executor states its threads and its instruction path."""
    return Environment(
        commit=_commit(),
        cpu=cpu_name(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=threads,
        instruction_path=instruction_path,
        system=platform.platform(),
        python=platform.python_version(),
        versions=installed_versions(),
    )


def installed_versions() -> dict[str, str]:
    """Return the versions of those ``PACKAGES`` that are installed (code run from a checkout is not)."""
    found = {name: next(iter(metadata.distributions(name=name)), None) for name in PACKAGES}
    return {name: distribution.version for name, distribution in found.items() if distribution is not None}


def _commit() -> str:
    """Return the commit of the checkout this file lies in, or an empty string."""
    folder = Path(__file__).resolve().parent
    if not any((parent / ".git").exists() for parent in folder.parents):
        return ""
    try:
        head, changes = (
            subprocess.run(
                ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=10
            ).stdout.strip()
            for arguments in (
                ["rev-parse", "--short=12", "HEAD"],
                ["status", "--porcelain", "--untracked-files=no"],
            )
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return head + ("+" if changes else "")
