"""Training rows: a prompt and the reply the target itself gave to it. One JSON object per line::

{"id": "7", "source": "gsm8k", "prompt_token_ids": […], "response_token_ids": […], "temperature": 0.7,
 "finish_reason": "stop", "text": "…", "messages": […]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError
from paceline.train.storage import parse_json, read_lines


@dataclass(frozen=True, slots=True)
class Row:
    """``prompt``, ``response``: token ids; the response ends with the EOS token if the target wrote one."""

    id: str
    source: str
    prompt: tuple[int, ...]
    response: tuple[int, ...]
    temperature: float

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.prompt + self.response


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a file that have a response. Raises ``ConfigError`` naming the line."""
    for number, line in read_lines(path):
        row = _parse(line, f"{path}, line {number}")
        if row.response:
            yield row


def _parse(line: str, where: str) -> Row:
    try:
        values = parse_json(line)
        return Row(
            id=str(values["id"]),
            source=str(values["source"]),
            prompt=_ids(values, "prompt_token_ids"),
            response=_ids(values, "response_token_ids"),
            temperature=float(values["temperature"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{where} is no regenerated row ({error!r}): it needs id, source, prompt_token_ids, "
            "response_token_ids and temperature"
        ) from error


def _ids(values: Mapping[str, Any], name: str) -> tuple[int, ...]:
    ids = values[name]
    if not isinstance(ids, list) or not all(type(token) is int and token >= 0 for token in ids):
        raise ValueError(f"{name} must be a list of token ids")
    if name == "prompt_token_ids" and not ids:
        raise ValueError(f"{name} must hold at least one token")
    return tuple(ids)
