"""The program as its users meet it: help, versions, one line for each mistake, light to start."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import paceline
from paceline.cli import main as program
from paceline.cli.profile import parse_rows
from paceline.drafters.copy_check import LowAcceptanceWarning
from paceline.errors import ConfigError, PacelineError, QueueFullError

COMMANDS = ("generate", "chat", "demo", "bench", "profile", "pull", "models", "synth", "theory")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the program in this process; return its status."""
    monkeypatch.setattr(sys, "argv", ["paceline", *arguments])
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    try:
        program.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_help_names_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--help") == 0
    text = capsys.readouterr().out
    assert all(f" {command} " in text for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, command, "-h") == 0
    assert "Usage: " in capsys.readouterr().out


def test_help_and_version_start_without_the_heavy_parts() -> None:
    heavy = (
        "tokenizers",
        "jinja2",
        "matplotlib",
        "huggingface_hub",
        "gguf",
        "torch",
        "paceline.native._core",
    )
    script = f"import sys, paceline.cli.main; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", "hello", "-m", "smollm3"), "smollm3"),
        (("generate", "hello", "-m", "/nowhere/model.gguf"), "/nowhere/model.gguf"),
        (("generate", "hello", "--temperature", "-1"), "--temperature -1.0: give"),
        (("generate", "hello", "--max-tokens", "-1"), "--max-tokens -1: give a whole number at least 1"),
        (("generate", "hello", "--threads", "0"), "--threads 0: give"),
        (("generate", "-"), "standard input is empty"),
        (("generate", ""), "the prompt is empty"),
        (("bench", "--workload", "rewrites"), "did you mean 'rewrite'"),
        (("bench", "--drafter", ","), "--drafter is empty"),
        (("bench", "--repeat", "0"), "--repeat 0"),
        (("bench", "--limit", "0"), "--limit 0"),
        (("bench", "--batch", "1,0"), "--batch 0"),
        (("bench", "--batch", "few"), "--batch 'few': give numbers"),
        (("bench", "--temperature", "0,hot"), "--temperature '0,hot': give numbers"),
        (("bench", "--price-per-hour", "-1"), "--price-per-hour -1.0"),
        (("bench", "compare", "/nowhere/a.json", "/nowhere/b.json"), "/nowhere/a.json cannot be read"),
        (("bench", "--unseeded"), "--unseeded does nothing at --temperature 0"),
        (("bench", "--dataset", "/nowhere/rows.jsonl"), "/nowhere/rows.jsonl cannot be read"),
        (("profile", "--rows", "4-1"), "must rise"),
        (("models", "--path", "smollm"), "smollm2-135m"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert lines[-1].startswith("paceline: "), captured.err
    assert message in lines[-1]
    assert "Traceback" not in captured.err


def test_an_unknown_option_names_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "generate", "--tempratur", "1") == 2
    assert "--tempratur" in capsys.readouterr().err


def test_every_error_of_ours_is_caught_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug must keep its traceback; only what a user can cause becomes one line."""

    def fail(error: BaseException) -> None:
        def app() -> None:
            raise error

        monkeypatch.setattr(program, "app", app)
        program.main()

    for kind in PacelineError.__subclasses__():
        with pytest.raises(SystemExit) as end:
            fail(QueueFullError("no", 1.0) if kind is QueueFullError else kind("no"))
        assert end.value.code == program.USER_ERROR
    with pytest.raises(SystemExit) as end:
        fail(KeyboardInterrupt())
    assert end.value.code == program.INTERRUPTED
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())


def test_rows_of_a_profile() -> None:
    assert parse_rows("1-4,8, 3") == (1, 2, 3, 4, 8)
    for text in ("", "x", "1-", "-3", "0", "3-2", "1-9999", "1.5"):
        with pytest.raises(ConfigError):
            parse_rows(text)


def test_a_file_that_cannot_be_written_is_a_mistake(tmp_path: Path) -> None:
    from paceline.cli.files import write_text

    write_text(tmp_path / "new" / "file.json", "{}")
    assert (tmp_path / "new" / "file.json").read_text() == "{}"
    with pytest.raises(ConfigError, match="cannot write"):
        write_text(tmp_path / "new", "{}")


@pytest.mark.parametrize("command", ["bench", "profile"])
def test_a_result_file_is_tried_before_the_measuring(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped --json was noticed only when there was something to write, and minutes of figures were lost.

    The model does not exist either: naming the file shows that it was tried first.
    """
    (tmp_path / "file").write_text("kept")
    out = tmp_path / "file" / "out.json"
    assert run(monkeypatch, command, "-m", "/nowhere/model.gguf", "--json", str(out)) == 2
    assert f"cannot write {out}" in capsys.readouterr().err
    assert run(monkeypatch, command, "-m", "/nowhere/model.gguf", "--json", str(tmp_path / "new.json")) == 2
    assert run(monkeypatch, command, "-m", "/nowhere/model.gguf", "--json", str(tmp_path / "file")) == 2
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "kept")]


def test_closed_standard_input_is_a_mistake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``paceline chat <&-``: Python then has no ``sys.stdin`` at all, which ended in a traceback."""
    for arguments in (("chat",), ("generate",), ("generate", "-")):
        monkeypatch.setattr(sys, "argv", ["paceline", *arguments, "-m", "/nowhere/model.gguf"])
        monkeypatch.setattr(sys, "stdin", None)
        with pytest.raises(SystemExit) as end:
            program.main()
        assert end.value.code == program.USER_ERROR
        assert "standard input is closed" in capsys.readouterr().err


def test_output_that_lacks_a_character_or_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emoji on a Latin-1 terminal, and ``> /dev/full``, ended a reply with a traceback."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(program, "app", lambda: print("né \N{GRINNING FACE}", flush=True))
    program.main()
    assert out.buffer.getvalue().split() == [b"n\xe9", b"?"]  # type: ignore[attr-defined]

    def full(number: int) -> None:
        raise OSError(number, os.strerror(number))

    # A quota that is used up is a full disk to its user; training ended there with a traceback.
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        monkeypatch.setattr(program, "app", partial(full, number))
        with pytest.raises(SystemExit) as end:
            program.main()
        assert end.value.code == program.USER_ERROR


def test_a_warning_of_ours_is_one_line_and_others_keep_their_place() -> None:
    """A weak draft model once greeted users with the path and a line of our source."""
    weak = program.format_warning("it drafts badly", LowAcceptanceWarning, "draft_model.py", 7)
    assert weak == "paceline: warning: it drafts badly\n"
    other = program.format_warning("overflow", RuntimeWarning, "numbers.py", 7)
    assert other.startswith("numbers.py:7: RuntimeWarning: overflow")


def test_python_runs_the_package_and_knows_its_version() -> None:
    done = subprocess.run([sys.executable, "-m", "paceline", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"paceline {paceline.__version__}\n")


def test_help_keeps_the_brackets_of_an_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were taken for markup: the command that the help gave installed nothing new."""
    assert run(monkeypatch, "theory", "plot", "--help") == 0
    assert 'pip install "paceline[plot]"' in capsys.readouterr().out


def test_a_cost_curve_that_is_too_short_is_refused_before_any_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    curve = tmp_path / "profile.json"
    curve.write_text('{"r": {"1": 1.0, "4": 1.3}}')
    assert run(monkeypatch, "theory", "table", "--cost-curve", str(curve)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "measured up to 4: give --lengths 1-3" in captured.err
    assert run(monkeypatch, "theory", "table", "--cost-curve", str(curve), "--lengths", "1-3") == 0
