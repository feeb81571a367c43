"""``paceline advise`` and ``paceline export`` as programs, on a tiny model with random weights."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from paceline.advise import candidates as looking
from paceline.advise.advice import MARK
from paceline.cli import main as program
from support.command_line import Program
from support.tiny_models import write_tiny_gguf


@pytest.fixture
def paceline(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Program:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PACELINE_PROFILE", "off")
    monkeypatch.setattr(looking, "hub_files", lambda: iter(()))
    return Program(monkeypatch, capsys)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("advise") / "tiny.gguf", "llama", "q8_0", seed=3))


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    rows = [json.dumps({"prompt": f"Say {word} again and again"}) for word in ("one", "two", "three")]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


def test_from_a_model_to_settings_that_other_commands_take(
    paceline: Program, model: str, prompts: str, tmp_path: Path
) -> None:
    output, found = tmp_path / "paceline.toml", tmp_path / "found.json"
    arguments = ["advise", "-m", model, "--prompts", prompts, "--seconds", "1", "-n", "6", "-t", "1"]
    status, out, _ = paceline(*arguments, "-o", str(output), "--json", str(found))
    assert status == 0
    assert "possible drafters" in out and "no head comes with Paceline" in out.replace("\n", " ")
    assert "Recommended: " in out and f"written to {output}" in out.replace("\n", "")
    settings = tomllib.loads(output.read_text(encoding="utf-8"))
    assert settings["model"] == model and settings["threads"] == 1
    data = json.loads(found.read_text(encoding="utf-8"))
    assert data["chosen"]["drafter"] == settings["drafter"]
    measured = {finding["entrant"]["drafter"] for finding in data["findings"]}
    assert {"ngram", "suffix", "recycle", "auto"} <= measured
    assert all(finding["num_turns"] >= 3 for finding in data["findings"][:1])
    status, _, err = paceline("generate", "--raw", "Hi", "-n", "3", "--stats", "--config", str(output))
    assert status == 0 and "3 tokens" in err
    status, out, _ = paceline("export", "vllm", "--config", str(output))
    assert "checked against vLLM" in out


def test_settings_of_somebody_else_are_not_overwritten(paceline: Program, model: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('drafter = "ngram"\n', encoding="utf-8")
    status, _, err = paceline("advise", "-m", model, "-o", str(mine))
    assert status == program.USER_ERROR and "was not written by advise" in err
    assert mine.read_text(encoding="utf-8") == 'drafter = "ngram"\n'
    mine.write_text(f"{MARK}, once\n", encoding="utf-8")
    status, _, err = paceline("advise", "-m", str(tmp_path / "no.gguf"), "-o", str(mine))
    assert "no.gguf" in err, "its own file may be written again"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seconds", "0"], "--seconds 0"),
        (["--max-tokens", "1"], "--max-tokens 1"),
        (["--drafter-dir", "/nowhere/at/all"], "is no folder"),
        (["--prompts", "/nowhere/at/all.jsonl"], "cannot be read"),
    ],
)
def test_bad_arguments_are_named(
    paceline: Program, model: str, prompts: str, tmp_path: Path, arguments: list[str], words: str
) -> None:
    given = ["--prompts", prompts, "-o", str(tmp_path / "o.toml"), "-t", "1", *arguments]
    status, _, err = paceline("advise", "-m", model, *given)
    assert status == program.USER_ERROR and words in err
    assert not (tmp_path / "o.toml").exists()


def test_export_reads_the_options_and_says_what_it_cannot(paceline: Program) -> None:
    status, out, _ = paceline("export", "llama.cpp", "-m", "/m/a.gguf", "-d", "ngram", "-k", "4")
    assert status == 0 and out.splitlines()[-1].endswith("--spec-ngram-simple-size-m 4")
    status, out, _ = paceline("export", "vllm", "-m", "hf:o/m", "-d", "recycle")
    assert status == 1 and "no equivalent" in out
    status, out, _ = paceline("export", "sglang", "-m", "hf:o/m", "-d", "draft_model:hf:o/s", "--json")
    assert json.loads(out)["command"][-1] == "8"
    status, _, err = paceline("export", "vlm")
    assert status == program.USER_ERROR and "did you mean 'vllm'?" in err
