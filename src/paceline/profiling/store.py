"""Profiles on disk: whole or not at all, and only for the machine they were measured on."""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError
from paceline.models.catalog import cache_dir
from paceline.profiling.machine import ProfileKey
from paceline.theory.cost_table import CostTable

logger = logging.getLogger("paceline.profiling")

FORMAT = 4
"""2: r(M) of whole steps, not of bare forwards. 3: the spread. 4: ``auto`` without recycling. Older ones are
measured again."""
BUSY_SPREAD = 0.25
"""Spread from which on the machine counts as busy: 0.05 when quiet, 0.7 where two programs share cores."""
MOST_TRIES = 3
"""Starts that measure on a busy machine: one that is never quiet is not to be measured for ever."""
_FIELDS = {"format", "key", "measured_at", "model_name", "table", "drafters", "parts", "spread", "tries"}


@dataclass(frozen=True, slots=True)
class Profile:
    """A cost table and where it comes from.

    ``measured_at``: UTC, ISO 8601. ``drafters``: of each drafter with weights, what tells another one under
    the same name (its size in bytes). ``parts``: single measurements in seconds, for people. ``spread``: how
    far steps of one width lay apart (``timing.spread``). ``tries``: starts that have measured it so far.
    """

    key: ProfileKey
    measured_at: str
    model_name: str
    table: CostTable
    drafters: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.0
    tries: int = 1

    @property
    def is_disturbed(self) -> bool:
        """Whether the machine was busy with other things while this was measured."""
        return self.spread > BUSY_SPREAD

    @property
    def is_provisional(self) -> bool:
        """Whether a later start should measure it again."""
        return self.is_disturbed and self.tries < MOST_TRIES

    def to_json(self) -> dict[str, Any]:
        """Return plain data for ``json.dump``."""
        return {
            "format": FORMAT,
            "key": self.key.to_json(),
            "measured_at": self.measured_at,
            "model_name": self.model_name,
            "table": self.table.to_json(),
            "drafters": dict(self.drafters),
            "parts": dict(self.parts),
            "spread": self.spread,
            "tries": self.tries,
        }

    @classmethod
    def from_json(cls, plain: object) -> Profile:
        """Return the profile of :meth:`to_json`. Raises ``ConfigError`` for anything else."""
        if not isinstance(plain, dict) or not set(plain) >= _FIELDS or plain["format"] != FORMAT:
            raise ConfigError(f"this is no profile of format {FORMAT}: it needs {', '.join(sorted(_FIELDS))}")
        for name in ("drafters", "parts"):
            if not isinstance(plain[name], dict):
                raise ConfigError(f"a profile's {name} are an object, not {plain[name]!r:.80}")
        return cls(
            ProfileKey.from_json(plain["key"]),
            str(plain["measured_at"]),
            str(plain["model_name"]),
            CostTable.from_json(plain["table"]),
            {str(name): str(identity) for name, identity in plain["drafters"].items()},
            {str(name): float(seconds) for name, seconds in plain["parts"].items()},
            float(plain["spread"]),
            int(plain["tries"]),
        )


def stored_path(key: ProfileKey, model_name: str) -> Path:
    """Return where the profile of ``key`` lies in the cache folder.

    Processor and version are not part of the name: a profile that another machine or version has left in a
    shared cache is found, named in the log, and measured again, so that no old ones pile up.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", model_name)[:60].strip("-.") or "model"
    short = f"{name}-{key.model[:8]}-{key.weight_bytes:x}-{key.instruction_path}-t{key.threads}"
    return cache_dir() / "profiles" / f"{short}.json"


def read_profile(path: Path) -> Profile:
    """Read a profile. Raises ``ConfigError`` naming the file when it cannot be read or is none."""
    try:
        return Profile.from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"profile {path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"profile {path} is damaged: {error}") from error


def require_key(profile: Profile, key: ProfileKey, path: Path) -> Profile:
    """Return ``profile`` if it was measured for ``key``. Raises ``ConfigError`` saying what differs."""
    different = key.differences(profile.key)
    if different:
        raise ConfigError(
            f"profile {path} was measured elsewhere and says nothing here ({'; '.join(different)}): measure "
            "with `paceline profile --refresh`, or leave profile='auto'"
        )
    return profile


def load_stored(path: Path, key: ProfileKey) -> Profile | None:
    """Return the profile in the cache, or ``None`` when it has to be measured, saying why."""
    if not path.exists():
        return None
    try:
        return require_key(read_profile(path), key, path)
    except ConfigError as error:
        logger.warning("%s; it is measured again", error)
        return None


def save(profile: Profile, path: Path) -> None:
    """Write a profile whole, or leave what was there. A folder that cannot be written is one warning."""
    text = json.dumps(profile.to_json(), indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(part).replace(path)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
    except OSError as error:
        logger.warning("the profile cannot be kept in %s (%s); it is measured again next time", path, error)
