"""``paceline train eagle3``: options reach the run, mistakes are one line, and bars tell the truth."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from paceline.cli import main as program
from paceline.cli import train_report
from paceline.cli.train_report import BarReporter
from support.tiny_models import write_tiny_gguf
from support.training import write_prompts


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("train")
    return str(write_tiny_gguf(folder / "tiny.gguf")), str(write_prompts(folder / "p.jsonl", 6))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, command: str = "eagle3") -> int:
    monkeypatch.setattr(sys, "argv", ["paceline", "train", command, *arguments])
    try:
        program.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def common(files: tuple[str, str], out: Path) -> list[str]:
    model, prompts = files
    return ["--target", model, "--prompts", prompts, "--out", str(out), "--layers", "0,1,2", "-t", "1"]


def test_stages_run_and_rows_can_be_inspected(
    files: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [*common(files, tmp_path / "run"), "--max-tokens", "12", "--draft-vocab", "64"]
    assert run(monkeypatch, *arguments, "--inspect", "2") == 2
    assert "no replies to inspect yet: run with --until regenerate" in capsys.readouterr().err
    pytest.importorskip("torch")
    assert run(monkeypatch, *arguments, "--until", "vocabulary") == 0
    assert "vocabulary: 64 of 320 tokens cover" in capsys.readouterr().err
    assert (tmp_path / "run" / "vocabulary" / "stage.json").is_file()
    assert not (tmp_path / "run" / "fit").exists()
    assert run(monkeypatch, *arguments, "--inspect", "2") == 0
    out = capsys.readouterr().out
    assert "supervised tokens in all rows" in out
    assert out.count("temperature") == 2
    first = json.loads((tmp_path / "run" / "regenerate" / "replies.jsonl").read_text().splitlines()[0])
    assert first["id"] in out


def test_a_draft_model_is_another_command_with_the_same_stages(
    files: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("torch")
    model, prompts = files
    arguments = [
        "--target",
        model,
        "--prompts",
        prompts,
        "--out",
        str(tmp_path),
        "-t",
        "1",
        "--max-tokens",
        "12",
    ]
    more = ["--draft-layers", "2", "--held-out", "0.3", "--until", "fit", "--set", "num_steps=2"]
    assert run(monkeypatch, *arguments, *more, command="draft-model") == 0
    assert "fit: 2 steps of 2048 supervised tokens" in capsys.readouterr().err
    assert (tmp_path / "fit" / "draft.gguf").is_file()
    assert run(monkeypatch, *arguments, "--layers", "1", command="draft-model") == 2
    assert "--layers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--replies", "x.jsonl"], "one of them"),
        (["--until", "capure"], "--until 'capure' (did you mean 'capture'?)"),
        (["--redo", "everything"], "--redo 'everything': give one of regenerate"),
        (["--layers", "a,b"], "--layers 'a,b': give numbers"),
        (["--layers", "0,1,9"], "has the ids 0 to 2"),
        (["--max-disk", "lots"], "size 'lots'"),
        (["--set", "optimizer"], "--set 'optimizer': give NAME=VALUE"),
        (["--temperatures", "0:0.4"], "the shares sum to 0.4"),
        (["--held-out", "0.9"], "--held-out 0.9"),
    ],
)
def test_mistakes_are_one_line(
    files: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    extra: list[str],
    message: str,
) -> None:
    assert run(monkeypatch, *common(files, tmp_path / "run"), *extra) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("paceline: ")
    assert error.count("\n") == 1


def test_without_pytorch_it_says_how_to_install_it(
    files: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    find = importlib.util.find_spec

    def without_torch(name: str, *rest: Any) -> Any:
        return None if name == "torch" else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without_torch)
    assert run(monkeypatch, *common(files, tmp_path / "run")) == 2
    assert "pip install 'paceline[train]'" in capsys.readouterr().err


def test_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work found on disk says nothing about the speed of this run: 500 of 1,000 were done, 100 a minute."""
    now = [0.0]
    monkeypatch.setattr(train_report.time, "monotonic", lambda: now[0])
    reporter = BarReporter(Console(file=io.StringIO(), width=200))
    reporter.start("capture", 1000, "tokens")
    reporter.advance(500)
    for _ in range(3):
        now[0] += 60
        reporter.advance(100, "note")
    lines = reporter.console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 3
    assert lines[-1] == "capture: 800 of 1000 tokens, 1.667/s, 2 min left · note"


def test_bars_on_a_terminal() -> None:
    screen: Any = io.StringIO()
    with BarReporter(Console(file=screen, force_terminal=True, width=120)) as reporter:
        reporter.start("fit", 4, "steps")
        reporter.advance(2, "loss 1.5")
        reporter.say("a line worth keeping")
        reporter.stop()
        reporter.stop()
    text = screen.getvalue()
    assert "a line worth keeping" in text
    assert "fit" in text
