"""What the documents say exists: commands with their options, make targets, links, names in examples."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from support.doc_blocks import run_blocks

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
INLINE = re.compile(r"`(paceline [^`]*|make [^`]*)`")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, *languages: str) -> Iterator[str]:
    for language, body in BLOCK.findall(path.read_text(encoding="utf-8")):
        if language in languages:
            yield body


def command_lines() -> Iterator[tuple[Path, str]]:
    """Yield each shell line of a code block, and each inline command that is more than a name."""
    for path in DOCUMENTS:
        for body in blocks(path, "sh", "bash", "console"):
            yield from ((path, line.removeprefix("$ ")) for line in body.replace("\\\n", " ").splitlines())
        text = BLOCK.sub("", path.read_text(encoding="utf-8"))
        yield from ((path, found) for found in INLINE.findall(text))


PACELINE = [(p, line) for p, line in command_lines() if line.startswith("paceline ")]
MAKE = [(p, line) for p, line in command_lines() if re.match(r"(\w+=\S+ )*make ", line)]


def parse_command(line: str) -> None:
    """Let the program's own parser read ``line``, without running it. Raises what it raises."""
    from paceline.cli.main import app

    command: Any = typer.main.get_command(app)
    arguments = shlex.split(line, comments=True)[1:]
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        assert arguments[0] in command.commands, f"{arguments[0]!r} is no command"
        command, arguments = command.commands[arguments[0]], arguments[1:]
    # A bare name in running text stands for the command; it may leave out what the command needs.
    command.make_context(command.name, arguments, resilient_parsing=not arguments)


@pytest.mark.parametrize(("path", "line"), PACELINE, ids=lambda v: v if isinstance(v, str) else name(v))
def test_each_paceline_command_is_understood(path: Path, line: str) -> None:
    parse_command(line)


def test_a_wrong_command_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match="no command"):
        parse_command("paceline generation x")
    with pytest.raises(Exception, match="No such option") as caught:
        parse_command("paceline bench --modell x")
    assert type(caught.value).__name__ == "NoSuchOption"


@pytest.mark.parametrize(("path", "line"), MAKE, ids=lambda v: v if isinstance(v, str) else name(v))
def test_each_make_target_exists(path: Path, line: str) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    wanted = [word for word in line.partition("#")[0].split() if word != "make" and "=" not in word]
    assert set(wanted) <= set(targets), f"{name(path)}: {line!r}"


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(BLOCK.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"https?:|mailto:", target):
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), f"{name(path)} links to {target}, which is not there"
        assert not anchor or anchor in anchors(found), f"{name(path)}: no heading for {target}"


def test_every_document_can_be_reached_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [p for p in (ROOT / "docs").glob("*.md") if p.name != "index.md"]
    missing = [p.name for p in pages if f"({p.name})" not in index]
    assert not missing, f"docs/index.md does not mention {missing}"


PYTHON = [(p, body) for p in DOCUMENTS for body in blocks(p, "python")]


@pytest.mark.parametrize(("path", "body"), PYTHON, ids=lambda v: "code" if isinstance(v, str) else name(v))
def test_python_examples_import_names_that_exist(path: Path, body: str) -> None:
    examples = doctest.DocTestParser().get_examples(body)
    source = "".join(example.source for example in examples) if examples else body
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("paceline"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                assert hasattr(module, alias.name), f"{name(path)}: {node.module} has no {alias.name}"


@pytest.mark.real_model
def test_the_python_example_of_the_readme_runs(
    smollm2_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_blocks(ROOT / "README.md", {"smollm2-135m": str(smollm2_path)}, {})
    assert "num_verify_steps" in capsys.readouterr().out


def test_the_readme_is_complete() -> None:
    """No gap is left where a figure belongs."""
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"to be completed|TODO|<!-- TABLE|<!-- FIGURE", text), f"{name(path)} has a gap"
