"""Replies are the target's own, and the same ones however often the work was interrupted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import ConfigError
from paceline.llm import LLM
from paceline.sampling.params import SamplingParams
from paceline.train.prompts import TrainPrompt
from paceline.train.regenerate import ReplySettings, parse_temperatures, regenerate, row_params
from paceline.train.rows import read_rows
from support.tiny_models import write_tiny_gguf

SETTINGS = ReplySettings(max_tokens=12, max_prompt_tokens=60, seed=3)
PROMPTS = [TrainPrompt(f"p{i}", "s", (("user", f"the and {i}"),)) for i in range(9)]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")
    return LLM(path, "none", threads=1, max_model_len=256, kv_cache_tokens=2048)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_greedy_row_is_what_chat_answers(llm: LLM, tmp_path: Path) -> None:
    settings = ReplySettings(((0.0, 1.0),), 12, 60)
    counts = regenerate(llm, PROMPTS[:2], tmp_path / "r.jsonl", settings)
    assert (counts.num_rows, counts.num_new) == (2, 2)
    expected = llm.chat(
        [prompt.as_messages() for prompt in PROMPTS[:2]], SamplingParams(temperature=0, max_tokens=12)
    )
    rows = list(read_rows(tmp_path / "r.jsonl"))
    assert [row.response for row in rows] == [reply.outputs[0].token_ids for reply in expected]
    assert [row.prompt for row in rows] == [reply.prompt_token_ids for reply in expected]
    assert lines(tmp_path / "r.jsonl")[0]["messages"] == PROMPTS[0].as_messages()


def test_interrupted_work_ends_with_the_same_file(
    llm: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampled rows too: their seed follows from the id. The second chunk is interrupted, then a torn line is
    left as a kill in the middle of a write would."""
    whole, path = tmp_path / "whole.jsonl", tmp_path / "r.jsonl"
    regenerate(llm, PROMPTS, whole, SETTINGS)
    generate, calls = llm.generate, []

    def stop_at_second(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return generate(*arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(llm, "generate", stop_at_second)
        regenerate(llm, PROMPTS, path, SETTINGS, chunk=4)
    assert len(lines(path)) == 4
    with path.open("a") as file:
        file.write('{"id": "p4", "response_tok')
    seen: list[int] = []
    counts = regenerate(llm, PROMPTS, path, SETTINGS, chunk=3, progress=lambda n, tokens: seen.append(n))
    assert path.read_text() == whole.read_text()
    assert (counts.num_rows, counts.num_new, seen) == (9, 5, [4, 3, 2])


def test_long_prompts_are_skipped_and_counted(llm: LLM, tmp_path: Path) -> None:
    long = TrainPrompt("long", "s", (("user", "the " * 200),))
    counts = regenerate(llm, [PROMPTS[0], long], tmp_path / "r.jsonl", SETTINGS)
    assert (counts.num_rows, counts.skipped.num_too_long) == (1, 1)


def test_a_file_of_other_prompts_is_refused(llm: LLM, tmp_path: Path) -> None:
    regenerate(llm, PROMPTS[:2], tmp_path / "r.jsonl", SETTINGS)
    with pytest.raises(ConfigError, match="holds the row 'p1', which is not among the prompts"):
        regenerate(llm, PROMPTS[:1], tmp_path / "r.jsonl", SETTINGS)


def test_temperatures_are_mixed_as_stated() -> None:
    """4,000 ids: each count lies within 6 standard deviations (false alarm below 1e-8); no chance involved
    after all, since the hash is fixed."""
    settings = ReplySettings()
    counts = Counter(row_params(f"row-{i}", settings).temperature for i in range(4000))
    for temperature, share in settings.temperatures:
        assert abs(counts[temperature] - 4000 * share) < 6 * (4000 * share * (1 - share)) ** 0.5
    other = ReplySettings(seed=1)
    assert any(
        row_params(f"row-{i}", settings).temperature != row_params(f"row-{i}", other).temperature
        for i in range(20)
    )


def test_temperatures_are_parsed() -> None:
    assert parse_temperatures("0:0.5,1:0.5") == ((0.0, 0.5), (1.0, 0.5))
    with pytest.raises(ConfigError, match="give pairs"):
        parse_temperatures("0,1")
    with pytest.raises(ConfigError, match=r"sum to 0\.5"):
        ReplySettings(parse_temperatures("0:0.5"))


def test_a_row_that_is_none_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text('{"id": "a"}\n')
    with pytest.raises(ConfigError, match=r"r\.jsonl, line 1 is no regenerated row"):
        list(read_rows(tmp_path / "r.jsonl"))
