"""Errors of the library, said to people who typed options."""

from __future__ import annotations

import pytest
import typer

from paceline.cli.main import app
from paceline.cli.wording import in_options, option_names


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "max_tokens=-1: give a whole number at least 1 (None for as many as fit the context)",
            "--max-tokens -1: give a whole number at least 1",
        ),
        ("max_model_len=9 is more than 8: lower it", "--context 9 is more than 8: lower it"),
        (
            "unseeded=True does nothing at temperature=0: drop it",
            "--unseeded does nothing at --temperature 0: drop it",
        ),
        (
            "top_p=0.0 keeps no token: or temperature=0 for greedy",
            "--top-p 0.0 keeps no token: or --temperature 0 for greedy",
        ),
        ("enable_prefix_caching=3: give True or False", "enable_prefix_caching=3: give True or False"),
        ("/tmp/seed=3/temperature=1.gguf is no model", "/tmp/seed=3/temperature=1.gguf is no model"),
    ],
)
def test_settings_are_called_by_their_options(message: str, said: str) -> None:
    """``--max-tokens -1`` was answered with ``max_tokens=-1 (None for …)``, which nobody can type."""
    assert in_options(message, typer.main.get_command(app)) == said


def test_an_option_that_commands_call_differently_is_not_guessed() -> None:
    assert "output" not in option_names(typer.main.get_command(app))
