"""Prompt files of every form in use, and what is said about rows of none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import ConfigError
from paceline.models.loading import load_model_files
from paceline.train.prompts import prompt_ids, read_prompts
from support.tiny_models import write_tiny_gguf

USER = {"role": "user", "content": "Hi"}
REPLY = {"role": "assistant", "content": "Hello"}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"messages": [USER]}, [("user", "Hi")]),
        ({"messages": [{"role": "system", "content": "S"}, USER, REPLY]}, [("system", "S"), ("user", "Hi")]),
        (
            {"messages": [USER, REPLY, {"role": "user", "content": "And?"}, REPLY]},
            [("user", "Hi"), ("assistant", "Hello"), ("user", "And?")],
        ),
        ({"prompt": "Hi"}, [("user", "Hi")]),
        ({"prompt": "Hi", "completion": "Hello"}, [("user", "Hi")]),
        ({"prompt": [USER], "completion": [REPLY]}, [("user", "Hi")]),
        (
            {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "x"}]},
            [("user", "Hi")],
        ),
        ({"turns": ["Hi", "More"]}, [("user", "Hi")]),
    ],
)
def test_every_form_ends_with_the_users_message(tmp_path: Path, row: Any, expected: list[Any]) -> None:
    (prompt,) = read_prompts([write(tmp_path / "p.jsonl", row)]).prompts
    assert list(prompt.messages) == expected


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"text": "Hi"},
            "needs exactly one of messages, prompt, conversations, turns, but has the keys text",
        ),
        ({"prompt": "a", "turns": ["b"]}, "has prompt and turns"),
        (["Hi"], "is no JSON object but list"),
        ({"messages": []}, "at least one message"),
        ({"turns": []}, "at least one message"),
        ({"messages": [REPLY]}, "no message of the user's"),
        ({"messages": [{"role": "user", "content": ""}]}, "needs role"),
        ({"conversations": [{"from": "dog", "value": "Hi"}]}, "needs from"),
        ({"prompt": 3}, "at least one message"),
    ],
)
def test_a_row_of_unknown_form_names_file_and_line(tmp_path: Path, row: Any, message: str) -> None:
    path = write(tmp_path / "p.jsonl", {"prompt": "fine"}, row)
    with pytest.raises(ConfigError, match=message) as caught:
        read_prompts([path])
    assert f"{path}, line 3" in str(caught.value), "blank lines count"


def test_text_that_is_no_json_or_no_file(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text("{\n")
    with pytest.raises(ConfigError, match="line 1 is not JSON"):
        read_prompts([path])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prompts([tmp_path / "none.jsonl"])
    path.write_text("\n")
    with pytest.raises(ConfigError, match="no prompts"):
        read_prompts([path])


def test_duplicates_are_dropped_and_ids_stay_unique(tmp_path: Path) -> None:
    """Two data sets that both count from 0 must not overwrite each other's replies on resume."""
    first = write(tmp_path / "a.jsonl", {"id": 0, "prompt": "Hi", "source": "s"}, {"id": 1, "prompt": "Ho"})
    second = write(tmp_path / "b.jsonl", {"id": 0, "turns": ["Other"]}, {"messages": [USER]}, {"prompt": "x"})
    found = read_prompts([first, second])
    assert [prompt.id for prompt in found.prompts] == ["0", "1", "b-1-0", "b-5"]
    assert [prompt.source for prompt in found.prompts] == ["s", "a", "b", "b"]
    assert found.num_duplicates == 1


def test_ids_are_those_of_serving(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    (prompt,) = read_prompts([write(tmp_path / "p.jsonl", {"prompt": "the"})]).prompts
    with load_model_files(path) as files:
        ids = prompt_ids(files, prompt)
        assert files.tokenizer.decode(ids, skip_special=False) == (
            "<|im_start|>user\nthe<|im_end|>\n<|im_start|>assistant\n"
        )
