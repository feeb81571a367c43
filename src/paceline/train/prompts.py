"""Prompts to train on, from JSONL files in the forms that are in use; replies in them are left out.

A row has exactly one of::

    {"messages": [{"role": "user", "content": "…"}, …]}               chat; last replies are dropped
    {"prompt": "…" or [messages], "completion": …}                    the completion is not used
    {"conversations": [{"from": "human", "value": "…"}, …]}           ShareGPT
    {"turns": ["…", …]}                                               Spec-Bench; the first turn

``id`` (or ``question_id``) and ``source`` (or ``category``) are optional. The target answers every prompt
itself: a head learns to predict the target, not the authors of a data set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError
from paceline.models.loading import ModelFiles
from paceline.train.storage import digest_of, parse_json, read_lines

Message = dict[str, str]
_FORMS = ("messages", "prompt", "conversations", "turns")
_ROLES = ("system", "user", "assistant")
_SHAREGPT_ROLES = {"system": "system", "human": "user", "user": "user", "gpt": "assistant"}
_SHAREGPT_ROLES |= {
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
}


@dataclass(frozen=True, slots=True)
class TrainPrompt:
    """A conversation that ends with the user's message. ``id`` is unique within one call's prompts."""

    id: str
    source: str
    messages: tuple[tuple[str, str], ...]

    def as_messages(self) -> list[Message]:
        return [{"role": role, "content": content} for role, content in self.messages]


@dataclass(frozen=True, slots=True)
class PromptSet:
    """``num_duplicates``: rows left out because an earlier one says the same."""

    prompts: tuple[TrainPrompt, ...]
    num_duplicates: int


def read_prompts(paths: Sequence[Path]) -> PromptSet:
    """Return the prompts of all files in their order. Raises ``ConfigError`` naming file and line."""
    prompts: list[TrainPrompt] = []
    texts: set[str] = set()
    ids: set[str] = set()
    num_duplicates = 0
    for path in paths:
        for prompt in _read_file(path, ids):
            text = digest_of(prompt.messages)
            if text in texts:
                num_duplicates += 1
                continue
            texts.add(text)
            prompts.append(prompt)
    if not prompts:
        names = ", ".join(map(str, paths)) or "no file"
        raise ConfigError(f"{names}: no prompts: write one JSON object per line with {', '.join(_FORMS)}")
    return PromptSet(tuple(prompts), num_duplicates)


def _read_file(path: Path, ids: set[str]) -> Iterator[TrainPrompt]:
    for number, line in read_lines(path):
        where = f"{path}, line {number}"
        row = _parse_object(line, where)
        messages = _parse_row(row, where)
        own = row.get("id", row.get("question_id"))
        identity = f"{path.stem}-{number}" if own is None else str(own)
        if identity in ids:  # files count their rows alike
            identity = f"{path.stem}-{number}-{identity}"
        if identity in ids:
            raise ConfigError(f"{where}: the file was given twice, or its id {own!r} cannot be made unique")
        ids.add(identity)
        yield TrainPrompt(identity, str(row.get("source", row.get("category", path.stem))), messages)


def _parse_object(line: str, where: str) -> dict[str, Any]:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is no JSON object but {type(row).__name__}")
    return row


def _parse_row(row: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    given = [name for name in _FORMS if name in row]
    if len(given) != 1:
        found = " and ".join(given) or f"the keys {', '.join(row) or '(none)'}"
        raise ConfigError(f"{where} needs exactly one of {', '.join(_FORMS)}, but has {found}")
    (form,) = given
    value = row[form]
    if form == "prompt" and isinstance(value, str):
        value = [{"role": "user", "content": value}]
    elif form == "turns":
        value = [{"role": "user", "content": value[0]}] if isinstance(value, list) and value else value
    if not isinstance(value, list) or not value:
        raise ConfigError(f"{where}: {form} must hold at least one message, not {value!r:.60}")
    messages = [_parse_message(message, form, where) for message in value]
    while messages and messages[-1][0] == "assistant":
        messages.pop()
    if not messages or messages[-1][0] != "user":
        raise ConfigError(f"{where}: {form} has no message of the user's at its end to be answered")
    return tuple(messages)


def _parse_message(message: object, form: str, where: str) -> tuple[str, str]:
    keys = ("from", "value") if form == "conversations" else ("role", "content")
    role, content = (message.get(key) if isinstance(message, dict) else None for key in keys)
    if form == "conversations":
        role = _SHAREGPT_ROLES.get(role) if isinstance(role, str) else None
    if role not in _ROLES or not isinstance(content, str) or not content.strip():
        roles = _SHAREGPT_ROLES if form == "conversations" else _ROLES
        raise ConfigError(
            f"{where}: a message of {form} needs {keys[0]} ({', '.join(roles)}) and {keys[1]} (text), "
            f"not {message!r:.80}"
        )
    return str(role), content


def prompt_ids(files: ModelFiles, prompt: TrainPrompt) -> list[int]:
    """Return a prompt's ids, as serving makes them: the chat template, or plain text for a base model.

    Raises ``PromptError`` for what the template refuses.
    """
    if files.chat_template_text is not None:
        return files.chat_template.encode(prompt.as_messages())
    return files.tokenizer.encode("\n\n".join(content for _, content in prompt.messages) + "\n")
