"""What a profile belongs to: the machine, the settings and the model it was measured with."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from pathlib import Path

from paceline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ProfileKey:
    """Costs hold for one of each of these.

    ``model``: fingerprint of the weights that no quantisation touches; ``weight_bytes``: size of all repacked
    weights, which tells quantisations apart. ``version``: Paceline's.
    """

    cpu: str
    threads: int
    instruction_path: str
    model: str
    weight_bytes: int
    version: str

    def differences(self, other: ProfileKey) -> list[str]:
        """Return ``name: theirs, here ours`` for each field that ``other`` (a stored key) has otherwise."""
        return [
            f"{field.name}: {getattr(other, field.name)!r}, here {getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        ]

    def to_json(self) -> dict[str, str | int]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: object) -> ProfileKey:
        """Return the key of :meth:`to_json`. Raises ``ConfigError`` for anything else."""
        types = {
            field.name: int if field.name in ("threads", "weight_bytes") else str for field in fields(cls)
        }
        if not isinstance(plain, dict) or set(plain) != set(types):
            raise ConfigError(f"a profile's key has the fields {', '.join(types)}")
        for name, kind in types.items():
            if type(plain[name]) is not kind:
                raise ConfigError(f"a profile's key has {name}={plain[name]!r:.80}, no {kind.__name__}")
        return cls(**plain)


def cpu_name() -> str:
    """Return the processor's name for itself where the system tells it, else its architecture."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def paceline_version() -> str:
    """Return the installed version; ``checkout`` for code that runs from a working tree."""
    found = next(iter(metadata.distributions(name="paceline")), None)
    return "checkout" if found is None else str(found.version)
