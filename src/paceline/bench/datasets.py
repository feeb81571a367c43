"""Prompts to measure with: the built-in workloads and files of the user's.

A file holds one JSON object per line, in one of these forms::

    {"question_id": 81, "category": "writing", "turns": ["…", "…"]}       the Spec-Bench form (id works too)
    {"prompt": "…"}                                                       one user turn
    {"messages": [{"role": "system", "content": "…"}, {"role": "user", "content": "…"}]}

``id`` and ``category`` are optional in the last two. Rows of any other form are errors that name their line.

In a file, rows of the Spec-Bench form whose category is one of MT-bench's eight belong to one workload,
``mt-bench``, as Spec-Bench counts its tasks; every other category is a workload of its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError, nearest_name

WORKLOADS = ("chat", "code", "math", "summarize", "extract", "rewrite")
MT_BENCH = "mt-bench"
MT_BENCH_CATEGORIES = (
    "writing",
    "roleplay",
    "reasoning",
    "math",
    "coding",
    "extraction",
    "stem",
    "humanities",
)
_FORMS = "turns, prompt or messages"
_ROLES = ("system", "user", "assistant")

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One conversation to measure.

    ``workload``: what it is reported under. ``turns``: what the user says, one reply each; the replies of
    earlier turns stay in the conversation. ``opening``: messages that stand before the first turn (a system
    message, earlier replies). ``part``: its category within a workload of several, else empty.
    """

    id: str
    workload: str
    turns: tuple[str, ...]
    opening: tuple[tuple[str, str], ...] = ()
    part: str = ""

    @property
    def category(self) -> str:
        """What its row says it is: the part, or the workload where that has no parts."""
        return self.part or self.workload

    def messages(self, replies: Sequence[str]) -> list[Message]:
        """Return the conversation up to the turn that follows ``replies``."""
        said = list(self.opening)
        for turn, reply in zip(self.turns, replies, strict=False):
            said += [("user", turn), ("assistant", reply)]
        said.append(("user", self.turns[len(replies)]))
        return [{"role": role, "content": content} for role, content in said]


def load_workload(name: str) -> list[BenchPrompt]:
    """Return the prompts of a built-in workload. Raises ``ConfigError`` for an unknown name."""
    if name not in WORKLOADS:
        near = nearest_name(name, WORKLOADS)
        raise ConfigError(f"workload={name!r} is unknown{near}; valid: {', '.join(WORKLOADS)}")
    text = (resources.files("paceline.bench") / "workloads" / f"{name}.jsonl").read_text(encoding="utf-8")
    return _parse_lines(text, f"workload {name}", name)


def load_dataset(path: Path) -> list[BenchPrompt]:
    """Return the prompts of a JSONL file, in its order.

    The workload of a row is its category (``mt-bench`` for those of MT-bench, see above), or the file's name.
    Raises ``ConfigError`` naming the file and the line when a row cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"dataset {path} cannot be read: {error}") from error
    return _parse_lines(text, str(path), path.stem, MT_BENCH_CATEGORIES)


def first_prompts(prompts: Sequence[BenchPrompt], limit: int | None) -> list[BenchPrompt]:
    """Return ``limit`` prompts (``None``: all) of each workload; the workloads one after another.

    Within a workload the categories take turns, so that few prompts still hold something of each; what is
    chosen stays in its order.
    """
    chosen: list[BenchPrompt] = []
    for workload in dict.fromkeys(prompt.workload for prompt in prompts):
        mine = [prompt for prompt in prompts if prompt.workload == workload]
        ranks, seen = [], Counter[str]()
        for prompt in mine:
            ranks.append(seen[prompt.category])
            seen[prompt.category] += 1
        # Python's sort is stable: the first of every category, then the second of every category …
        order = sorted(range(len(mine)), key=ranks.__getitem__)[:limit]
        chosen += [mine[index] for index in sorted(order)]
    return chosen


def _parse_lines(text: str, source: str, workload: str, parts: Sequence[str] = ()) -> list[BenchPrompt]:
    prompts = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            prompts.append(_parse_row(line, f"{source}, line {number}", number, workload, parts))
    if not prompts:
        raise ConfigError(f"{source} holds no prompts: write one JSON object per line with {_FORMS}")
    return prompts


def _parse_row(line: str, where: str, number: int, workload: str, parts: Sequence[str]) -> BenchPrompt:
    """Return the prompt of one row; ``parts``: the categories that are parts of ``mt-bench``."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is no JSON object but {type(row).__name__}")
    given = [name for name in ("turns", "prompt", "messages") if name in row]
    if len(given) != 1:
        found = " and ".join(given) or f"the keys {', '.join(row) or '(none)'}"
        raise ConfigError(f"{where} needs exactly one of {_FORMS}, but has {found}")
    opening, turns = _conversation(row, given[0], where)
    identity = row.get("question_id", row.get("id", number))
    category = str(row.get("category", workload))
    if given[0] == "turns" and category in parts:
        return BenchPrompt(str(identity), MT_BENCH, turns, opening, category)
    return BenchPrompt(str(identity), category, turns, opening)


def _conversation(
    row: Mapping[str, Any], form: str, where: str
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return the opening messages and the user's turns of a row."""
    if form == "messages":
        messages = _messages(row["messages"], where)
        return messages[:-1], (messages[-1][1],)
    turns = [row["prompt"]] if form == "prompt" else row["turns"]
    if not isinstance(turns, list) or not turns:
        raise ConfigError(f"{where}: turns must be a list with at least one text")
    for turn in turns:
        if not isinstance(turn, str) or not turn.strip():
            raise ConfigError(f"{where}: {form} must hold text, not {turn!r}")
    return (), tuple(turns)


def _messages(value: object, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list) or not value:
        raise ConfigError(f"{where}: messages must be a list with at least one message")
    messages = []
    for message in value:
        role = message.get("role") if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if role not in _ROLES or not isinstance(content, str):
            raise ConfigError(
                f"{where}: a message needs role ({', '.join(_ROLES)}) and content, not {message!r}"
            )
        messages.append((role, content))
    if messages[-1][0] != "user":
        raise ConfigError(
            f"{where}: the last message must be the user's, so that there is something to answer"
        )
    return tuple(messages)
