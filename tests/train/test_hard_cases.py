"""Bugs that were found by trying to break training runs: what happened, and what must happen instead."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import ConfigError, DrafterError, PromptError
from paceline.models.chat_template import ChatTemplate
from paceline.train.options import TrainOptions
from paceline.train.pipeline import Pipeline
from paceline.train.prompts import read_prompts
from paceline.train.regenerate import ReplySettings
from paceline.train.rows import read_rows
from paceline.train.storage import append_lines
from support.tiny_models import write_tiny_gguf
from support.training import Lines, write_prompts

ROW = {"id": "0", "source": "s", "prompt_token_ids": [3], "response_token_ids": [4, 5, 6], "temperature": 0}


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file grow past ``size`` bytes: writes behind fail half-way, as on a full disk."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def options(tmp_path: Path) -> TrainOptions:
    return TrainOptions(
        target=str(write_tiny_gguf(tmp_path / "tiny.gguf", seed=1)),
        out=tmp_path / "run",
        prompts=(write_prompts(tmp_path / "prompts.jsonl", 4),),
        threads=1,
        reply=ReplySettings(max_tokens=8, max_prompt_tokens=120),
        num_requests=4,
        state_layers=(0, 1, 2),
        draft_vocab=96,
    )


def write_rows(path: Path, *rows: dict[str, Any]) -> tuple[Path, ...]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return (path,)


@pytest.mark.parametrize("room", [0, 100, 290])
@pytest.mark.parametrize("length", [1, 60])
def test_a_full_disk_leaves_no_torn_rows(tmp_path: Path, room: int, length: int) -> None:
    """The file was cut back, and then closing it wrote what its buffer still held: rows torn at both ends,
    which made the run refuse its own replies on resume."""
    path = tmp_path / "rows.jsonl"
    append_lines(path, [{"a": number} for number in range(10)])
    before = path.read_bytes()
    with largest_file(len(before) + room), pytest.raises(OSError, match="too large"):
        append_lines(path, [{"b": "x" * length, "n": number} for number in range(500)])
    assert path.read_bytes() == before


def test_a_full_disk_is_told_as_such_when_a_checkpoint_is_written(tmp_path: Path) -> None:
    """torch's writer raised "[enforce fail at inline_container.cc] unexpected pos": a traceback where the
    program has a line about the disk."""
    torch = pytest.importorskip("torch")
    from paceline.train.fit import Fit

    fit = Fit.__new__(Fit)
    fit.folder = tmp_path
    with largest_file(50_000), pytest.raises(OSError, match="too large"):
        fit._save("checkpoint.pt", {"head": torch.zeros(100_000)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "a \\ud800 b"}', "half a character"),
        ('{"prompt": "fine", "id": "\\udfff"}', "half a character"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_prompts_that_broke_the_reader(tmp_path: Path, line: str, message: str) -> None:
    """A lone surrogate (a JSON escape that is half of a pair) or deep nesting in one of a million rows ended
    the run with UnicodeEncodeError or RecursionError that named no line."""
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "pair \\ud83d\\ude00 is fine"}\n' + line + "\n")
    with pytest.raises(ConfigError, match=f"line 2.*{message}"):
        read_prompts([path])


@pytest.mark.parametrize(
    ("text", "message"),
    [("[" * 100_000, "nested too deep"), (json.dumps({**ROW, "prompt_token_ids": []}), "at least one token")],
)
def test_rows_that_broke_a_later_stage(tmp_path: Path, text: str, message: str) -> None:
    """A row without a prompt trained for hours and then failed in evaluate, which has nothing to serve."""
    path = tmp_path / "r.jsonl"
    path.write_text(text + "\n")
    with pytest.raises(ConfigError, match=f"line 1.*{message}"):
        list(read_rows(path))


def test_a_prompt_that_the_template_refuses_is_left_out(
    options: TrainOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regenerate counts such prompts and goes on, but the estimate before it raised for the first of them."""
    encode = ChatTemplate.encode

    def picky(self: ChatTemplate, messages: Any, **variables: Any) -> list[int]:
        if "refuse me" in messages[-1]["content"]:
            raise PromptError("roles must alternate")
        return encode(self, messages, **variables)

    monkeypatch.setattr(ChatTemplate, "encode", picky)
    (path,) = options.prompts
    path.write_text(json.dumps({"prompt": "refuse me"}) + "\n" + path.read_text())
    run, lines = Pipeline(options, told := Lines()), told
    run.run(until="regenerate")
    assert run.results["regenerate"].values["num_replies"] == 4
    assert "1 refused by template" in lines.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draft_vocab": 100}, "multiple of 16"),
        ({"draft_vocab": 4096}, "below the target's 320"),
        ({"eval_prompts": Path("nowhere.jsonl")}, "nowhere.jsonl cannot be read"),
    ],
)
def test_what_a_late_stage_refuses_is_refused_first(
    options: TrainOptions, change: dict[str, Any], message: str
) -> None:
    """A mistyped --eval-prompts was found behind the fit (as a FileNotFoundError), a draft vocabulary of 100
    behind the capture: after hours."""
    with pytest.raises(ConfigError, match=message):
        Pipeline(replace(options, **change)).run()
    assert not (options.out / "regenerate").exists()


@pytest.mark.parametrize("name", ["prompt_token_ids", "response_token_ids"])
@pytest.mark.parametrize("token", [320, 2**40])
def test_replies_of_another_model_are_told_as_such(options: TrainOptions, name: str, token: int) -> None:
    """Ids past the vocabulary reached the native executor: "ValueError: token id out of range", without the
    row, or an OverflowError."""
    rows = write_rows(options.out.parent / "r.jsonl", ROW, {**ROW, "id": "odd", name: [1, token, 2]})
    with pytest.raises(ConfigError, match=f"row 'odd' holds the token {token}.*another model"):
        Pipeline(replace(options, prompts=(), replies=rows)).run()


def test_one_row_is_told_to_be_too_little(options: TrainOptions) -> None:
    """When the only row was one that judges, the run said that no response token was counted."""
    for identity in ("a", "b", "c", "d"):
        rows = write_rows(options.out.parent / f"{identity}.jsonl", {**ROW, "id": identity})
        out = options.out / identity
        with pytest.raises(ConfigError, match="1 row is too little"):
            Pipeline(replace(options, prompts=(), replies=rows, out=out, held_out=0.5)).run("vocabulary")


def test_a_place_that_cannot_be_written_is_one_clear_line(options: TrainOptions) -> None:
    """--out on a file, or on a read-only disk, ended in a traceback."""
    options.out.write_text("in the way")
    for out in (options.out, options.out / "below"):
        with pytest.raises(ConfigError, match=r"cannot be written.*choose another place"):
            Pipeline(replace(options, out=out)).run()


def test_temperatures_that_cannot_be_served_are_refused_first(options: TrainOptions) -> None:
    """--eval-temperatures 0.00001 was refused by evaluate, hours later."""
    with pytest.raises(ConfigError, match="temperature=1e-05"):
        replace(options, eval_temperatures=(1e-5,))
    with pytest.raises(ConfigError, match="temperature=1e-05"):
        ReplySettings(temperatures=((1e-5, 1.0),))


@pytest.mark.parametrize("keep", [1, True, (1, "a"), (1.0, 0.0), ()])
def test_any_value_of_keep_gets_an_answer(keep: Any) -> None:
    """``--set keep=1`` means one training-time step, is a number rather than a list, and was a TypeError."""
    pytest.importorskip("torch")
    from paceline.train.fit_config import FitConfig

    with pytest.raises(ConfigError, match=r"first one 1, e\.g\. 1,1,0\.5"):
        FitConfig(num_steps=1, keep=keep)
    with pytest.raises(ConfigError, match="seed"):
        FitConfig(num_steps=1, seed="x")  # type: ignore[arg-type]


@pytest.mark.parametrize(("alike", "passes"), [(75, True), (72, True), (60, False), (0, False)])
def test_parity_of_few_chains_is_not_decided_by_one_of_them(alike: int, passes: bool) -> None:
    """A short run on few rows failed at its end: 75 of 79 chains alike are 94.9 %, below the 95 % needed,
    where one more near tie decides."""
    pytest.importorskip("torch")
    from paceline.train.parity import DraftParity, StateParity, require_parity

    drafts = DraftParity(1, num_chains=79, alike=[0], reached=[0])
    drafts.alike, drafts.reached = [alike], [79]
    if passes:
        require_parity(StateParity(10, 0), drafts)
        return
    with pytest.raises(DrafterError, match=r"position 1 .* of 79 chains, 87\.6% are needed"):
        require_parity(StateParity(10, 0), drafts)
