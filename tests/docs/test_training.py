"""The training guide names options that exist and prompt forms that are read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from paceline.cli.main import app
from paceline.train.options import STAGES
from paceline.train.prompts import read_prompts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training.md"


def options_of(*names: str) -> set[str]:
    command = typer.main.get_command(app)
    for name in names:
        command = command.commands[name]  # type: ignore[attr-defined]
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


def test_options_exist() -> None:
    text = PAGE.read_text(encoding="utf-8")
    known = options_of("bench", "run") | options_of("generate")
    for command in ("eagle3", "draft-model", "export"):
        known |= options_of("train", command)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert named - known - {"--extra-index-url"} == set()  # pip's
    assert len(named) > 15, "the page must be looked at"


def test_every_stage_is_described_in_order() -> None:
    rows = re.findall(r"^\| `([a-z]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(rows) == STAGES


def test_the_forms_of_prompts_are_read(tmp_path: Path) -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "prompts.jsonl"
    path.write_text(block)
    found = read_prompts([path])
    assert len(found.prompts) + found.num_duplicates == 4
    assert found.prompts[0].source == "science"


def test_settings_of_the_fit_exist() -> None:
    pytest.importorskip("torch")
    from paceline.train.fit_config import FitConfig

    settings = re.findall(r"--set ([a-z_]+)=", PAGE.read_text(encoding="utf-8"))
    assert settings
    assert set(settings) <= set(FitConfig.__dataclass_fields__)
