"""Stages of a training run: each has a folder, knows what it was made from, and is done or not.

``stage.json`` in the folder holds the inputs (settings, digests of what earlier stages made) and, once the
stage is done, its result. A later run with the same inputs takes the result; one with other inputs is an
error that names them, because mixing silently is how heads get trained on states of another model.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError
from paceline.train.storage import digest_of, read_json, write_json

STAGE_FILE = "stage.json"
LOCK_FILE = ".lock"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StageResult:
    """``values``: what the stage says about its work. ``digest``: identifies it for the stages behind it.
    ``was_done``: it was found on disk. ``seconds``: of the run that finished it."""

    values: Json
    digest: str
    was_done: bool
    seconds: float


def run_stage(out: Path, name: str, inputs: Mapping[str, Any], work: Callable[[Path], Json]) -> StageResult:
    """Run ``work(folder)``, which returns the stage's result, unless it is done already.

    ``inputs`` and result are JSON values. Work that was interrupted finds its folder as it left it. Raises
    ``ConfigError`` when the folder was made from other inputs.
    """
    folder = out / name
    path = folder / STAGE_FILE
    wanted = _plain(inputs)
    if path.is_file():
        found = read_json(path)
        _check_inputs(folder, found.get("inputs"), wanted)
        if "result" in found:
            return StageResult(found["result"], digest_of([wanted, found["result"]]), True, found["seconds"])
    else:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, {"inputs": wanted})
    start = time.monotonic()
    result = _plain(work(folder))
    seconds = time.monotonic() - start
    write_json(path, {"inputs": wanted, "result": result, "seconds": seconds})
    return StageResult(result, digest_of([wanted, result]), False, seconds)


def is_done(out: Path, name: str) -> bool:
    """Return whether a stage was finished, from whatever inputs."""
    path = out / name / STAGE_FILE
    return path.is_file() and "result" in read_json(path)


def _plain(value: Any) -> Any:
    """Return ``value`` as JSON gives it back: tuples become lists, so that comparisons are fair."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _check_inputs(folder: Path, found: Any, wanted: Json) -> None:
    if found == wanted:
        return
    old = found if isinstance(found, dict) else {}
    names = [name for name in {**old, **wanted} if old.get(name) != wanted.get(name)]
    changes = "; ".join(f"{n}: was {_short(old.get(n))}, is {_short(wanted.get(n))}" for n in names)
    raise ConfigError(
        f"{folder} was made from other inputs ({changes}): choose another --out, or --redo {folder.name} to "
        "make it and all behind it anew"
    )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:24]}…{text[-24:]}"


def redo(out: Path, names: Sequence[str], first: str) -> None:
    """Delete the folders of stage ``first`` and of those behind it in ``names``."""
    for name in names[names.index(first) :]:
        folder = out / name
        if (folder / STAGE_FILE).is_file():  # only what a stage made, whatever ``out`` points at
            shutil.rmtree(folder)


@contextmanager
def only_run_in(out: Path) -> Iterator[None]:
    """Keep other runs out of ``out`` while the block runs; the lock dies with the process.

    Raises ``ConfigError`` when one is there. Systems without ``fcntl`` are not protected.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / LOCK_FILE).open("w")
    except OSError as error:
        raise ConfigError(
            f"--out {out} cannot be written ({error.strerror}): choose another place"
        ) from error
    with lock as file:
        if os.name != "posix":
            yield
            return
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"another training run works in {out}: wait for it or choose another --out"
            ) from error
        yield
