"""The benchmark that times ``auto`` against plain decoding and against fixed settings, on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import fixed_settings
import guard_cases
import guard_runs
import never_slower
import pytest
from fixed_settings import FixedResult
from guard_cases import Case
from guard_cases import guard_cases as all_cases
from guard_runs import CaseResult
from guard_tables import case_holds, fixed_table, guard_table

from support.tiny_models import write_tiny_gguf

SMALL = {1: 80, 8: 12, 32: 8}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model, short replies and prompts."""
    monkeypatch.setattr(guard_cases, "TOKENS", SMALL)
    monkeypatch.setattr(guard_runs, "TOKENS", SMALL)
    monkeypatch.setattr(never_slower, "TOKENS", SMALL)
    monkeypatch.setattr(never_slower, "PROMPT_ROOM", 800)
    turns = guard_cases.turns_of
    for owner in (guard_cases, fixed_settings):
        monkeypatch.setattr(owner, "turns_of", lambda text: [turn[:40] for turn in turns(text)])
    return write_tiny_gguf(tmp_path / "tiny.gguf", "llama", "q8_0", seed=3)


def result(**changes: object) -> CaseResult:
    base = CaseResult("chat", 1, [1.0, 1.02, 0.99], 1.0, [1.0], 1.3, 10, 5, 0)
    for name, value in changes.items():
        setattr(base, name, value)
    return base


def test_every_case_the_issue_names_is_there() -> None:
    cases = all_cases(guard_cases.BATCHES, ())
    labels = {case.label for case in cases if case.batch == 32}
    wanted = {*guard_cases.WORKLOADS, "random", "mixed, temperature 1", "mixed, temperature 1.5"}
    assert labels == wanted | {"always-wrong drafter"}
    assert len(cases) == 3 * len(labels)
    assert {case.label for case in all_cases((1,), ("temperature",))} == {
        "mixed, temperature 1",
        "mixed, temperature 1.5",
    }


def test_cases_run_are_kept_and_not_run_again(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "never.json"
    command = ["guard", "--json", str(kept), "--model", str(model), "--rounds", "2", "--batch", "1"]
    never_slower.main([*command, "--only", "chat", "--only", "temperature 1.5", "--only", "always"])
    stored = json.loads(kept.read_text())["guard"]
    assert set(stored) == {
        "chat / 1",
        "mixed, temperature 1.5 / 1",
        "always-wrong drafter / 1",
    }
    assert stored["chat / 1"]["identical"] == 1.0
    assert stored["mixed, temperature 1.5 / 1"]["identical"] is None
    wrong = stored["always-wrong drafter / 1"]
    assert wrong["warnings"] == 1
    assert wrong["num_draft_tokens"] > 50
    assert wrong["num_accepted_tokens"] < 5, "random weights say anything now and then"
    assert len(wrong["late"]) == 2, "replies of 80 tokens have some behind the 64th"
    assert "| always-wrong drafter | 1 |" in capsys.readouterr().out
    monkeypatch.setattr(never_slower, "run_case", lambda *_: pytest.fail("measured again"))
    never_slower.main([*command, "--only", "chat"])


def test_fixed_settings_are_screened_and_the_best_three_repeated(model: Path, tmp_path: Path) -> None:
    kept, page = tmp_path / "never.json", tmp_path / "never.md"
    command = ["--json", str(kept), "--model", str(model), "--prompts", "2", "--max-tokens", "6"]
    never_slower.main(["fixed", *command, "--only", "chat", "--rounds", "2"])
    found = FixedResult(**json.loads(kept.read_text())["fixed"]["chat"])
    assert len(found.screened) == 3 * 8, "the tiny model has no head"
    assert set(found.speedups) - {"auto"} <= set(found.screened)
    assert {len(values) for values in found.speedups.values()} == {2}
    assert len(found.speedups) == 4
    assert set(found.duel) == {"auto", found.best_fixed}
    assert {len(values) for values in found.duel.values()} == {6}
    assert found.identical == 1.0
    never_slower.main(["tables", "--json", str(kept), "--markdown", str(page)])
    assert page.read_text().count("| chat |") == 1


def test_random_text_is_text(model: Path) -> None:
    llm = never_slower.opened(str(model), 1)
    first, second = (guard_cases.random_prompt(llm, number) for number in (0, 1))
    assert first == guard_cases.random_prompt(llm, 0) != second
    assert not set(first) & set(llm.tokenizer.control_tokens.values())


def test_prompts_of_a_batch_differ(model: Path) -> None:
    """The same prompt twice is read once and copied from the first reply, which flatters drafters."""
    llm = never_slower.opened(str(model), 1)
    prompts = guard_cases.prompts_for(llm, Case("chat", 32), 0)
    assert len({tuple(prompt) for prompt in prompts}) == 32


def test_a_bar_that_is_missed_is_said() -> None:
    assert case_holds(result())
    assert not case_holds(result(ratios=[1.0, 1.04, 1.05]))
    assert not case_holds(result(identical=0.9))
    assert case_holds(result(identical=None))
    wrong = {"label": "always-wrong drafter", "warnings": 1}
    assert case_holds(result(**wrong))
    assert not case_holds(result(**{**wrong, "warnings": 2}))
    assert not case_holds(result(**wrong, late=[0.95]))
    assert "**no**" in guard_table([result(ratios=[1.1])])


def test_autos_share_is_that_of_the_best_fixed_setting() -> None:
    """It was taken from the rounds that chose the best of five, whose luck was held against ``auto``."""
    speedups = {"auto": [1.4, 1.5], "suffix, 3": [1.2, 1.2], "ngram, 4": [1.6, 1.5]}
    found = FixedResult("code", {}, speedups, {"auto": [1.4, 1.6], "ngram, 4": [1.6, 1.6]}, 1.0)
    assert found.best_fixed == "ngram, 4"
    assert found.shares == [pytest.approx(0.875), pytest.approx(1.0)]
    assert "| code | ngram, 4 | 1.60" in fixed_table([found])
    slow = FixedResult("chat", {}, {"suffix, 1": [1.05]}, {"auto": [0.9], "suffix, 1": [0.95]}, 1.0)
    assert "plain is best" in fixed_table([slow])
