"""``--config FILE``: what wins over what, what is refused, and that every command takes it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from paceline.cli import config_file
from paceline.cli import main as program
from paceline.cli.config_file import SHARED, read_config
from paceline.errors import ConfigError

Seen = dict[str, Any]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> tuple[Callable[..., Seen], Seen]:
    """Return a program of two commands and a group that only say what they were given."""
    seen: Seen = {}
    app = typer.Typer()
    group = typer.Typer()

    @app.command()
    def ask(
        model: str = "default",
        threads: int | None = None,
        temperature: float = 0.0,
        stop: list[str] | None = None,
        stats: bool = False,
        rows: str = "1",
    ) -> None:
        seen.update(locals())

    @app.command()
    def plain(model: str = "default") -> None:
        seen.update(model=model)

    @app.command()
    def fetch(name: str = "") -> None:
        """Opens no model, so it takes no file."""

    @group.command("one")
    def one(model: str = "default", num_draft_tokens: int = 1) -> None:
        seen.update(locals())

    @group.command("two")
    def two() -> None:
        """Another command of the group, so that it stays one."""

    app.add_typer(group, name="group")
    config_file.accept_config(app)

    def run(*arguments: str) -> Seen:
        seen.clear()
        app(list(arguments), standalone_mode=False)
        return dict(seen)

    return run, seen


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    def write_file(text: str) -> str:
        path = tmp_path / "settings.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write_file


def test_the_file_gives_defaults(toy: Any, write: Any) -> None:
    run, _ = toy
    path = write('model = "m"\nthreads = 3\ntemperature = 1\n')
    seen = run("ask", "--config", path)
    assert (seen["model"], seen["threads"], seen["temperature"]) == ("m", 3, 1.0)


def test_the_command_line_wins_wherever_it_stands(toy: Any, write: Any) -> None:
    run, _ = toy
    path = write("threads = 3\n")
    assert run("ask", "--threads", "5", "--config", path)["threads"] == 5
    assert run("ask", "--config", path, "--threads", "5")["threads"] == 5


def test_a_commands_table_wins_over_the_top_level(toy: Any, write: Any) -> None:
    run, _ = toy
    path = write('model = "top"\n[ask]\nmodel = "own"\nstop = ["a", "b"]\nstats = true\nrows = 8\n')
    seen = run("ask", "--config", path)
    assert (seen["model"], seen["stop"], seen["stats"], seen["rows"]) == ("own", ["a", "b"], True, "8")
    assert run("ask", "--config", path, "--model", "typed")["model"] == "typed"
    assert run("plain", "--config", path) == {"model": "top"}


def test_a_shared_setting_that_a_command_lacks_is_for_the_others(toy: Any, write: Any) -> None:
    run, _ = toy
    assert run("plain", "--config", write('model = "m"\nthreads = 2\n')) == {"model": "m"}


def test_a_file_does_not_outlive_its_command(toy: Any, write: Any) -> None:
    run, _ = toy
    assert run("plain", "--config", write('model = "m"\n[drift]\nfallback = "ngram"\n'))["model"] == "m"
    assert config_file.loaded_drift() is not None
    assert run("plain") == {"model": "default"}
    assert config_file.loaded_drift() is None


def test_a_group_reads_the_table_of_its_name(toy: Any, write: Any) -> None:
    run, _ = toy
    path = write("[group]\nnum-draft-tokens = 4\n")
    assert run("group", "one", "--config", path)["num_draft_tokens"] == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('modle = "m"', ("'modle'", "did you mean 'model'?")),
        ("[ask]\nthread = 3", ("[ask]", "'thread'", "did you mean 'threads'?")),
        ("[aks]\nthreads = 3", ("[aks]", "did you mean 'ask'?")),
        ("[fetch]\nname = 'x'", ("[fetch] is no command that takes --config",)),
        ("threads = 1.5", ("threads = 1.5", "a whole number")),
        ("threads = true", ("threads = True", "a whole number")),
        ('threads = "3"', ("threads = '3'", "a whole number")),
        ('temperature = "hot"', ("temperature = 'hot'", "a number")),
        ('[ask]\nstats = "yes"', ("stats = 'yes'", "true or false")),
        ("model = ['a', 'b']", ("model = ['a', 'b']", "write one text")),
        ("threads = = 3", ("is not TOML", "line 1")),
        ("drift = 3", ("[drift]",)),
        ("[drift]\nfalback = 'ngram'", ("did you mean 'fallback'?",)),
    ],
)
def test_what_is_wrong_is_named(toy: Any, write: Any, text: str, words: tuple[str, ...]) -> None:
    run, _ = toy
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        run("ask", "--config", path)
        config_file.loaded_drift()
    for word in (path, *words):
        assert word in str(caught.value)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_config(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"model = '\xe4'")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_config(tmp_path / "latin.toml")


# ---- the real program ----


def commands() -> dict[str, Any]:
    """Return every command of the program that has --model, by the words that call it."""
    root = typer.main.get_command(program.app)
    found = {}
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        members = getattr(command, "commands", {"": command})
        for part, member in members.items():
            if "model" in {param.name for param in member.params} and name != "train":
                found[f"{name} {part}".strip()] = member
    return found


def test_every_command_that_opens_a_model_takes_a_file() -> None:
    found = commands()
    assert {"generate", "chat", "demo", "bench run", "profile"} <= set(found)
    for name, command in found.items():
        assert "--config" in {word for param in command.params for word in param.opts}, name


def test_every_shared_setting_is_an_option_somewhere() -> None:
    known = {name for command in commands().values() for name in config_file._options(command)}
    assert set(SHARED) <= known


OPEN_NONE = {"export", "bench load"}
"""Have --model, but only pass the name on."""


@pytest.mark.parametrize("words", sorted(set(commands()) - OPEN_NONE))
def test_the_model_of_the_file_reaches_every_command(
    words: str,
    write: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A name that leads nowhere is what each of them complains of."""
    monkeypatch.chdir(tmp_path)
    path = write('model = "no-such-model-of-the-file"\n')
    arguments = ["Hi"] if words in ("generate", "explain") else []
    monkeypatch.setattr("sys.argv", ["paceline", *words.split(), *arguments, "--config", path])
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(SystemExit) as end:
        program.main()
    assert end.value.code == program.USER_ERROR
    assert "no-such-model-of-the-file" in capsys.readouterr().err
