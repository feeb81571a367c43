"""A run of the bench read back from its JSON, and whether two of them may be compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.bench.samples import Samples
from paceline.errors import ConfigError

_SETTINGS = ("max_tokens", "seed", "unseeded", "first_turn")
_MACHINE = ("cpu", "cores", "threads", "instruction_path")


@dataclass(frozen=True, slots=True)
class RunFile:
    """``data``: the JSON. ``runs`` and ``samples``: by workload, drafter, batch and temperature."""

    path: Path
    data: Mapping[str, Any]
    runs: Mapping[tuple[str, str, int, float], Mapping[str, Any]]
    samples: Mapping[tuple[str, str, int, float], Samples]

    @classmethod
    def read(cls, path: Path) -> RunFile:
        """Read what ``paceline bench --json`` wrote. Raises ``ConfigError`` for anything else."""
        data = _json(path)
        if data.get("kind") != "offline":
            raise ConfigError(f"{path} is no offline run of this version's bench: {_found(data)}")
        try:
            runs = {
                (str(run["workload"]), str(run["drafter"]), int(run["batch"]), float(run["temperature"])): run
                for run in data["runs"]
            }
            samples = {case: Samples.from_json(run["samples"], str(path)) for case, run in runs.items()}
            for part in ("settings", "environment"):
                data[part].keys()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{path} lacks what a run of the bench holds ({error!r}): run it again"
            ) from error
        if not runs:
            raise ConfigError(f"{path} holds no runs: run the bench again")
        return cls(path, data, runs, samples)

    @property
    def model(self) -> str:
        return str(next(iter(self.runs.values()))["model"])


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON ({error}): give a file of `paceline bench --json`") from error
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path} holds a JSON {type(data).__name__}: give a file of `paceline bench --json`"
        )
    return data


def _found(data: Mapping[str, Any]) -> str:
    if "kind" in data:
        return f"its kind is {data['kind']!r}, and only offline runs are compared"
    if "runs" in data and "settings" in data:
        return "an earlier one wrote it, without the samples that tell change from noise; run the bench again"
    return f"it has the keys {', '.join(map(str, data))[:100] or '(none)'}"


def differences(before: RunFile, after: RunFile) -> Iterator[str]:
    """Yield in words what makes the two runs answer different questions; nothing when they compare."""
    if before.model != after.model:
        yield f"model: {before.model!r} and {after.model!r}"
    elif before.data.get("model_bytes") != after.data.get("model_bytes"):
        yield f"size of the model: {before.data.get('model_bytes')} and {after.data.get('model_bytes')} bytes"
    for part, names in (("settings", _SETTINGS), ("environment", _MACHINE)):
        for name in names:
            theirs, ours = before.data[part].get(name), after.data[part].get(name)
            if theirs != ours:
                yield f"{'machine: ' * (part == 'environment')}{name}: {theirs!r} and {ours!r}"
    if before.data.get("prompts_digest") != after.data.get("prompts_digest"):
        yield "prompts: other ones, or another --limit"
    common = before.runs.keys() & after.runs.keys()
    if not common:
        yield "cases: no workload, drafter, batch and temperature is in both"


def unequal_units(before: RunFile, after: RunFile) -> bool:
    """Return whether some case has other units in the two runs, so that prompts cannot be paired."""
    common = before.runs.keys() & after.runs.keys()
    return any(before.samples[case].units != after.samples[case].units for case in common)
