"""The forms of a prompts file's rows, and how each becomes a conversation.

A form is known by the keys only it has. To add one: a reader below, and its line in ``FORMS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paceline.errors import ConfigError

_ROLES = ("system", "user", "assistant")
_SHARED_BY = {
    "human": "user",
    "user": "user",
    "system": "system",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
}
"""Who speaks in the ShareGPT form, in our words; any other name is taken for the assistant's."""

HUMAN_EVAL_REQUEST = (
    "Complete this Python function. Reply with the whole function.\n\n```python\n{prompt}\n```"
)
"""HumanEval's prompts are bare code, which a chat model would answer with talk about it."""

Opening = tuple[tuple[str, str], ...]


class NothingToAskError(Exception):
    """A row of a known form in which no user speaks first; ShareGPT's halves of split talks are such."""


@dataclass(frozen=True, slots=True)
class Form:
    """``keys``: a row that has them all is of this form. ``workload``: its name unless the row has a category
    (empty: the file's). ``identity``: keys of its id, the first found counts. ``read``: row, its place in
    words → opening messages and user's turns; raises ``ConfigError``."""

    name: str
    keys: tuple[str, ...]
    read: Callable[[Mapping[str, Any], str], tuple[Opening, tuple[str, ...]]]
    workload: str = ""
    identity: tuple[str, ...] = ("question_id", "id")


def _turns(row: Mapping[str, Any], where: str) -> tuple[Opening, tuple[str, ...]]:
    turns = row["turns"]
    if not isinstance(turns, list) or not turns:
        raise ConfigError(f"{where}: turns must be a list with at least one text")
    return (), tuple(_text(turn, "turns", where) for turn in turns)


def _prompt(row: Mapping[str, Any], where: str) -> tuple[Opening, tuple[str, ...]]:
    return (), (_text(row["prompt"], "prompt", where),)


def _human_eval(row: Mapping[str, Any], where: str) -> tuple[Opening, tuple[str, ...]]:
    code = _text(row["prompt"], "prompt", where)
    return (), (HUMAN_EVAL_REQUEST.format(prompt=code.strip("\n")),)


def _question(row: Mapping[str, Any], where: str) -> tuple[Opening, tuple[str, ...]]:
    return (), (_text(row["question"], "question", where),)


def _messages(row: Mapping[str, Any], where: str) -> tuple[Opening, tuple[str, ...]]:
    value = row["messages"]
    if not isinstance(value, list) or not value:
        raise ConfigError(f"{where}: messages must be a list with at least one message")
    messages = []
    for message in value:
        role = message.get("role") if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if role not in _ROLES or not isinstance(content, str):
            raise ConfigError(
                f"{where}: a message needs role ({', '.join(_ROLES)}) and content, not {message!r:.200}"
            )
        messages.append((role, content))
    if messages[-1][0] != "user":
        raise ConfigError(
            f"{where}: the last message must be the user's, so that there is something to answer"
        )
    return tuple(messages[:-1]), (messages[-1][1],)


def _conversations(row: Mapping[str, Any], where: str) -> tuple[Opening, tuple[str, ...]]:
    """Read the ShareGPT form: what the user says is asked turn by turn, the recorded replies are not used."""
    value = row["conversations"]
    if not isinstance(value, list):
        raise ConfigError(f"{where}: conversations must be a list")
    said = []
    for message in value:
        speaker = message.get("from") if isinstance(message, dict) else None
        text = message.get("value") if isinstance(message, dict) else None
        if not isinstance(speaker, str) or not isinstance(text, str):
            raise ConfigError(f"{where}: conversations needs from and value, not {message!r:.200}")
        said.append((_SHARED_BY.get(speaker, "assistant"), text))
    opening = tuple(said[:1]) if said and said[0][0] == "system" else ()
    rest = said[len(opening) :]
    turns = tuple(text for role, text in rest if role == "user" and text.strip())
    if not turns or rest[0][0] != "user":
        raise NothingToAskError
    return opening, turns


def _text(value: object, key: str, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{where}: {key} must hold text, not {value!r:.200}")
    return value


# The first form whose keys a row has is its form, so the special ones stand before the plain ones.
FORMS = (
    Form("HumanEval", ("task_id", "prompt", "entry_point"), _human_eval, "humaneval", ("task_id",)),
    Form("GSM8K", ("question", "answer"), _question, "gsm8k"),
    Form("ShareGPT", ("conversations",), _conversations, "sharegpt"),
    Form("Spec-Bench or MT-Bench", ("turns",), _turns),
    Form("plain", ("prompt",), _prompt),
    Form("chat", ("messages",), _messages),
)
_CONTENT = ("turns", "prompt", "messages", "conversations", "question")
FORM_WORDS = "turns, prompt, messages, conversations (ShareGPT), or question and answer (GSM8K)"


def form_of(row: Mapping[str, Any], where: str) -> Form:
    """Return the form of a row. Raises ``ConfigError`` for one of no form, or of several."""
    given = [key for key in _CONTENT if key in row]
    form = next((form for form in FORMS if all(key in row for key in form.keys)), None)
    if form is None or len(given) != 1:
        found = " and ".join(given) if len(given) > 1 else f"the keys {', '.join(row) or '(none)'}"
        raise ConfigError(f"{where} needs exactly one of {FORM_WORDS}, but has {found[:200]}")
    return form
