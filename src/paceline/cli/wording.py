"""Errors of the library in the words of the command line: ``--max-tokens -1`` for ``max_tokens=-1``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_OTHER_NAMES = {"max_model_len": "--context"}
"""Of settings whose option has another name."""
_SETTING = re.compile(r"(?<![\w/.-])([a-z][a-z_]+)=(?:(True)\b|(?=\S))")
_NONE_HINT = re.compile(r" \(None [^)]*\)")
"""What ``None`` would mean, which no option can be given."""


def in_options(message: str, program: Any) -> str:
    """Return ``message`` with settings written as options of ``program``, a click command."""
    flags = option_names(program)

    def as_option(found: re.Match[str]) -> str:
        flag = flags.get(found[1])
        return found[0] if flag is None else flag if found[2] else f"{flag} "

    return _NONE_HINT.sub("", _SETTING.sub(as_option, message))


def option_names(program: Any) -> Mapping[str, str]:
    """Return the option of each setting, without those that commands call differently."""
    found: dict[str, set[str]] = {}
    for name, flag in _options(program):
        found.setdefault(name, set()).add(flag)
    return {**_OTHER_NAMES, **{name: flags.pop() for name, flags in found.items() if len(flags) == 1}}


def _options(command: Any) -> Iterator[tuple[str, str]]:
    for parameter in command.params:
        longest = max(parameter.opts, key=len)
        if longest.startswith("--"):
            yield parameter.name, longest
    for inner in getattr(command, "commands", {}).values():
        yield from _options(inner)
