"""``paceline bench`` and its subcommands: which one a command line means."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from paceline.cli.main import app


def meant(*arguments: str) -> str:
    """Return the name of the command that ``paceline bench ARGUMENTS`` runs."""
    group: Any = typer.main.get_command(app).commands["bench"]  # type: ignore[attr-defined]
    context = group.make_context("bench", list(arguments))
    return str(context.command.name)


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ((), "run"),
        (("--drafter", "ngram"), "run"),
        (("run", "--drafter", "ngram"), "bench"),  # the group, which then parses the rest for `run`
    ],
)
def test_the_name_of_the_command_may_be_left_out(arguments: tuple[str, ...], command: str) -> None:
    """``paceline bench --drafter …`` was there before there were subcommands."""
    assert meant(*arguments) == command


def test_an_unknown_option_is_refused_as_before() -> None:
    with pytest.raises(Exception, match="No such option"):
        meant("--drafters", "ngram")


def test_a_misspelt_subcommand_names_the_right_one() -> None:
    """It said "unexpected extra argument (reprt x)": words behind ``bench`` went to ``run``."""
    done = CliRunner().invoke(app, ["bench", "reprt", "x"])
    assert done.exit_code == 2
    assert "No such command 'reprt'. Did you mean 'report'?" in done.stderr
