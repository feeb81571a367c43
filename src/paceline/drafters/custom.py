"""Drafters that do not come with Paceline: registered by a program, or found in an installed package.

``register_drafter("phrases", build)`` makes the name valid for engines and requests of this process. A
package that declares an entry point ``phrases = "my_package:build"`` in the group ``paceline.drafters`` makes
it valid for the command line too; it is imported when the name is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.drafters.base import Drafter
from paceline.drafters.verify_cost import VerifyCost
from paceline.errors import ConfigError, DrafterError
from paceline.executors.base import Executor

ENTRY_POINT_GROUP = "paceline.drafters"


@dataclass(frozen=True, slots=True)
class DraftTarget:
    """What a drafter may know when it is built.

    ``vocabulary``: text of each token id as the tokenizer spells it. ``num_draft_tokens``: most tokens
    drafted per step. ``verify_cost``: what verifying more rows costs.
    """

    executor: Executor
    vocabulary: Sequence[str]
    num_draft_tokens: int
    verify_cost: VerifyCost


BuildDrafter = Callable[[DraftTarget], Drafter]

_registered: dict[str, BuildDrafter] = {}


def register_drafter(name: str, build: BuildDrafter, *, taken: Sequence[str]) -> None:
    """Remember ``build`` under ``name``. Raises ``ConfigError`` for a name that is taken or no plain name."""
    if not name.replace("-", "_").isidentifier():
        raise ConfigError(f"drafter name {name!r}: use letters, digits, - and _, starting with a letter")
    if name in taken or name in _registered:
        raise ConfigError(f"drafter name {name!r} is taken: choose another one")
    _registered[name] = build


def unregister_drafter(name: str) -> None:
    """Forget a registered name. Raises ``ConfigError`` when it is not registered."""
    if _registered.pop(name, None) is None:
        raise ConfigError(f"drafter {name!r} is not registered")


def registered_names() -> tuple[str, ...]:
    """Return the names registered in this process."""
    return tuple(_registered)


def build_custom(name: str, target: DraftTarget) -> Drafter | None:
    """Return the drafter registered or installed as ``name``, or ``None`` when there is none.

    Raises ``DrafterError`` when what was built is no drafter.
    """
    build = _registered.get(name)
    if build is None:
        from importlib.metadata import entry_points  # slow to import, and rarely needed

        found = list(entry_points(group=ENTRY_POINT_GROUP, name=name))
        if not found:
            return None
        build = found[0].load()
    drafter = build(target)
    if not isinstance(drafter, Drafter):
        raise DrafterError(
            f"drafter {name!r} was built as {drafter!r}, which lacks name, capabilities or start"
        )
    return drafter
