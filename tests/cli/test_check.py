"""``paceline check`` from the command line: status, report, file, and what is refused at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.engine import engine as engine_module
from support.command_line import Program
from support.completion_server import Spoken, completion_server
from support.tiny_models import write_tiny_gguf

SPOKEN = Spoken(("a", " b"), (1, 2), (-0.1, -0.2))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("check") / "tiny.gguf", "llama", "q8_0", seed=3))


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "one two three"}\n{"prompt": "to be or not to be or not to"}\n')
    return str(path)


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(monkeypatch, capsys, "check")


@pytest.mark.filterwarnings("ignore::paceline.drafters.copy_check.LowAcceptanceWarning")
def test_a_sound_model_passes_and_writes_everything(
    check: Program, model: str, prompts: str, tmp_path: Path
) -> None:
    out = tmp_path / "check.json"
    arguments = ("--model", model, "--prompts", prompts, "--drafter", "suffix,draft_model:self:1")
    status, text, error = check(*arguments, "--quick", "--max-tokens", "12", "--json", str(out))
    assert status == 0, text + error
    assert "everything holds" in text
    assert "once in 1,000,000 runs" in text
    data = json.loads(out.read_text(encoding="utf-8"))
    assert data["passed"] is True
    assert data["drafters"] == ["suffix", "draft_model:self:1"]
    names = {test["name"] for test in data["law"]["tests"]}
    assert {"suffix", "draft_model:self:1: rejection", "draft_model:self:1: block"} <= names
    assert list(tmp_path.glob(".*")) == [], "no half-written file is left"


@pytest.mark.filterwarnings("ignore::paceline.drafters.copy_check.LowAcceptanceWarning")
def test_a_broken_engine_ends_with_status_one(
    check: Program, model: str, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine commits a drafted token without looking: replies follow the drafter."""
    from paceline.engine.accept import Acceptance

    honest = engine_module.Engine.__init__

    def credulous(sampler, draft, rows):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        path = (0,) if len(draft) else ()
        tokens = draft.tree.tokens[:1]
        return Acceptance(path, sampler.choose(rows[len(path)], tokens), "bonus")

    def broken(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN003, ANN202
        honest(self, *args, **kwargs)
        self._accept = credulous

    monkeypatch.setattr(engine_module.Engine, "__init__", broken)
    arguments = ("--model", model, "--prompts", prompts, "--drafter", "draft_model:self:1", "--draws", "1000")
    status, text, _ = check(*arguments, "--max-tokens", "12")
    assert status == 1
    assert "BUG: prompt" in text
    assert "NOT everything holds" in text


def test_servers_are_compared(check: Program, prompts: str, tmp_path: Path) -> None:
    out = tmp_path / "check.json"
    with completion_server(lambda _prompt, _number: SPOKEN) as told:
        arguments = ("--endpoint", told.url, "--endpoint-baseline", told.url, "--prompts", prompts)
        status, text, error = check(*arguments, "--json", str(out))
    assert status == 0, text + error
    assert "2 of 2 replies the same" in text
    assert json.loads(out.read_text())["form"] == "endpoint"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--api", "chat"), "--api does nothing without --endpoint"),
        (("--endpoint", "localhost:1", "--drafter", "auto"), "--drafter does nothing with --endpoint"),
        (("--endpoint", "ftp://x"), "give the address of a server"),
        (("--draws", "3"), "num_draws=3"),
        (("--drafter", ","), "--drafter is empty"),
    ],
)
def test_what_makes_no_sense_is_refused(check: Program, arguments: tuple[str, ...], says: str) -> None:
    status, _, error = check(*arguments)
    assert status == 2
    assert says in error


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "holds no prompts"),
        (b'{"prompt": "fine"}\n\xff\xfe\n', "line 2 is not UTF-8"),
        (b'{"prompt": "fine"}\n{"story": "?"}\n', "line 2"),
        (b'{"prompt": "fine"}\nnot json\n', "line 2 is not JSON"),
    ],
)
def test_bad_prompt_files_name_the_line(check: Program, tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    status, _, error = check("--prompts", str(path))
    assert status == 2
    assert "bad.jsonl" in error
    assert says in error


def test_a_server_that_is_down_is_named(check: Program, prompts: str) -> None:
    with completion_server(lambda _prompt, _number: SPOKEN) as told:
        url = told.url
    status, _, error = check("--endpoint", url, "--prompts", prompts)
    assert status == 2
    assert url in error
    assert "cannot be reached" in error
