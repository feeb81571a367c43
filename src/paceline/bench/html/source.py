"""Files of figures: which kind each one is, old and new keys alike, read into one form.

Files from before there were batches, intervals or predictions are read too; what they lack stays ``None``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError
from paceline.theory.cost_table import CostTable

Plain = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One drafter on one workload: a run of an offline file. ``data``: its figures as they stand there."""

    file: str
    model: str
    workload: str
    drafter: str
    batch: int
    temperature: float
    data: Plain

    def get(self, name: str) -> Any:
        """Return a figure, ``None`` where the file does not have it."""
        return self.data.get(name)


@dataclass(frozen=True, slots=True)
class Point:
    """One concurrency or rate of a load file."""

    file: str
    server: str
    data: Plain


@dataclass(frozen=True, slots=True)
class Profile:
    """A cost curve: from a profile file, or the table an offline run was predicted by."""

    file: str
    model: str
    table: CostTable


@dataclass(frozen=True, slots=True)
class Sources:
    """All files of a report, read. ``facts``: of each file, its kind, settings and machine for the reader."""

    cases: Sequence[Case]
    points: Sequence[Point]
    profiles: Sequence[Profile]
    facts: Sequence[tuple[str, str, Plain]]
    notes: Sequence[str]

    @property
    def drafters(self) -> list[str]:
        """Names of drafters in their order of appearance, ``none`` first: their colours follow."""
        names = dict.fromkeys(case.drafter for case in self.cases)
        return sorted(names, key=lambda name: name != "none")


def read_sources(paths: Sequence[Path]) -> Sources:
    """Read result files of any mix of kinds. Raises ``ConfigError`` naming the file that cannot be read."""
    cases: list[Case] = []
    points: list[Point] = []
    profiles: list[Profile] = []
    facts: list[tuple[str, str, Plain]] = []
    notes: list[str] = []
    names = _names(paths)
    for path, name in zip(paths, names, strict=True):
        plain = _read(path)
        try:
            kind = _kind(plain)
            if kind == "offline":
                cases += _cases(plain, name)
                profiles += _table_of(plain.get("cost_table"), name, cases[-1].model if cases else "")
            elif kind == "load":
                # A model served from a file goes by its path: the name is enough here.
                model = str(plain["server"]["model"]).rsplit("/", 1)[-1]
                server = f"{model} ({plain['server']['dialect']})"
                points += [Point(name, server, point) for point in plain["points"]]
                notes += [f"{name}: {note}" for note in plain.get("notes", ())]
            elif kind == "profile":
                profiles += _profile(plain, name)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ConfigError(f"{path} is damaged or from another version: {error!r}") from error
        if kind is None:
            raise ConfigError(
                f"{path} holds no figures of paceline bench or paceline profile (no runs, points or r(M)); "
                "give files written with --json"
            )
        facts.append((name, kind, _facts(plain)))
    return Sources(cases, points, profiles, facts, notes)


def _names(paths: Sequence[Path]) -> list[str]:
    """Return file names, with their folders where two are alike."""
    names = [path.name for path in paths]
    return [str(path) if names.count(path.name) > 1 else path.name for path in paths]


def _read(path: Path) -> Plain:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be read: {reason}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    if not isinstance(plain, dict):
        raise ConfigError(f"{path} holds no JSON object; give files written with --json")
    return plain


def _kind(plain: Plain) -> str | None:
    if plain.get("kind") == "load" or "points" in plain:
        return "load"
    if plain.get("kind") == "offline" or "runs" in plain:
        return "offline"
    return "profile" if any(key in plain for key in ("table", "cost_table", "r", "verify")) else None


def _cases(plain: Plain, name: str) -> list[Case]:
    settings = plain.get("settings", {})
    return [
        Case(
            name,
            str(run.get("model", "")),
            str(run["workload"]),
            str(run["drafter"]),
            int(run.get("batch", settings.get("batch", 1)) or 1),
            float(run.get("temperature", settings.get("temperature", 0.0)) or 0.0),
            run,
        )
        for run in plain["runs"]
    ]


def _table_of(plain: object, name: str, model: str) -> list[Profile]:
    return [] if plain is None else [Profile(name, model, CostTable.from_json(plain))]


def _profile(plain: Plain, name: str) -> list[Profile]:
    model = str(plain.get("model_name", plain.get("model", "")))
    for key in ("table", "cost_table"):
        if key in plain:
            return _table_of(plain[key], name, model)
    if "verify" in plain:
        return _table_of(plain, name, model)
    measured = sorted((int(rows), float(ms)) for rows, ms in plain["ms"].items())
    if measured[0][0] != 1:
        raise ConfigError(f"{name} has no forward with one row, which r(M) is told against: profile again")
    one = measured[0][1]
    # A cost never falls with more rows; where a measured one did, that was noise.
    ratios = accumulate((ms / one for _, ms in measured), max)
    verify = tuple((rows, ratio) for (rows, _), ratio in zip(measured, ratios, strict=True))
    return [Profile(name, model, CostTable(verify, one / 1e3, context=int(plain.get("context", 128))))]


def _facts(plain: Plain) -> Plain:
    """Return what tells how a file came about: its settings and machine, without the figures."""
    parts: dict[str, Any] = {}
    for key in ("endpoint", "server", "settings", "environment", "key", "measured_at", "price_per_hour"):
        value = plain.get(key)
        if isinstance(value, dict):
            parts |= {
                f"{key}: {name}": part for name, part in value.items() if part not in (None, [], {}, "")
            }
        elif value is not None:
            parts[key] = value
    return parts
