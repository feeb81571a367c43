"""Costs of a tiny model: measured once, kept, and without a say in what is replied."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from paceline import LLM, SamplingParams
from paceline.control.default_costs import CONSERVATIVE_COSTS
from paceline.errors import ConfigError
from paceline.profiling import costs, store
from paceline.profiling.store import FORMAT, Profile
from paceline.theory.cost_table import MEASURED_ROWS, DraftCost
from support.tiny_models import write_tiny_gguf

PROMPT = [5, 6, 7, 8, 9] * 6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("costs") / "tiny.gguf", "llama", "q8_0", seed=3)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder; little time per part, since the tiny model needs none, and any noise is fine."""
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    monkeypatch.setattr(store, "BUSY_SPREAD", math.inf)
    for name in ("_FORWARD_SECONDS", "_CHEAP_SECONDS", "_PART_SECONDS"):
        monkeypatch.setattr(costs, name, 0.1)
    return tmp_path


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever measures now fails."""

    def fail(*arguments: object) -> Profile:
        raise AssertionError("something was measured")

    monkeypatch.setattr(costs, "measure_profile", fail)


def test_the_first_use_measures_everything_and_keeps_it(model: Path, cache: Path) -> None:
    llm = LLM(model, "auto", threads=1, profile="auto")
    table = llm.engine.costs
    assert [rows for rows, _ in table.verify] == list(MEASURED_ROWS)
    assert table.context == 128
    assert 0 < table.row_seconds < 1
    assert 0 < table.step_seconds < 1
    assert all(table.cost_of(name).fixed > 0 for name in costs.CHEAP)
    assert table.cost_of("recycle").per_node > 0  # it asks for each row's likeliest successors
    kept = json.loads(llm.costs.path.read_text(encoding="utf-8"))
    assert kept["key"]["threads"] == 1
    assert llm.costs.path.is_relative_to(cache)
    assert llm.settings["profile"] == "auto"


@pytest.mark.usefixtures("cache")
def test_the_second_use_reads_it(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = LLM(model, "auto", threads=1, profile="auto").engine.costs
    monkeypatch.setattr(costs, "measure_profile", None)
    assert LLM(model, "suffix", threads=1, profile="auto").engine.costs == first


@pytest.mark.usefixtures("never")
def test_nothing_is_measured_for_plain_decoding_or_when_switched_off(model: Path, cache: Path) -> None:
    LLM(model, "none", threads=1, profile="auto")
    assert LLM(model, "auto", threads=1, profile="off").engine.costs == CONSERVATIVE_COSTS
    assert LLM(model, "auto", threads=1).engine.costs == CONSERVATIVE_COSTS  # tests/conftest.py
    assert list(cache.iterdir()) == []


@pytest.mark.usefixtures("cache")
def test_a_draft_model_is_measured_when_it_is_first_used(model: Path) -> None:
    LLM(model, "auto", threads=1, profile="auto")
    llm = LLM(model, f"draft_model:{model}", threads=1, profile="auto")
    drafting = llm.engine.costs.cost_of(f"draft_model:{model}")
    assert drafting.per_level > 0
    kept = llm.costs.profile
    assert kept is not None
    assert set(kept.drafters) == {f"draft_model:{model}"}
    assert any("chain of 5" in name for name in kept.parts)


def test_no_reply_depends_on_the_costs(model: Path, cache: Path, tmp_path: Path) -> None:
    """Doctored profiles, from free rows to rows dearer than forwards, change the drafts and no token."""
    llm = LLM(model, "auto", threads=1, profile="auto")
    plain = json.loads(llm.costs.path.read_text(encoding="utf-8"))
    cheap = {"fixed": 0.001, "per_level": 0.0, "per_node": 0.0}
    plain["table"]["draft_costs"] = dict.fromkeys(costs.CHEAP, cheap)  # the tiny model's forward is as cheap
    replies, steps = set(), set()
    for number, slope in enumerate((0.0, 0.3, 50.0)):
        plain["table"]["verify"] = [[m, 1.0 + slope * (m - 1)] for m in MEASURED_ROWS]
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(plain), encoding="utf-8")
        other = LLM(model, "auto", threads=1, profile=path, record_logit_hashes=True)
        for params in (SamplingParams(temperature=0), SamplingParams(temperature=0.9, seed=5)):
            (output,) = other.generate([PROMPT], _long(params))
            replies.add((params.temperature, output.outputs[0].token_ids))
            steps.add((slope, output.metrics.num_draft_tokens))
    assert len(replies) == 2
    assert len({drafted for _, drafted in steps}) > 1


def _long(params: SamplingParams) -> SamplingParams:
    return SamplingParams(
        temperature=params.temperature, seed=params.seed, max_tokens=48, ignore_eos=True, min_tokens=48
    )


@pytest.mark.usefixtures("never")
def test_a_profile_from_another_machine_is_refused(model: Path, tmp_path: Path) -> None:
    llm = LLM(model, "none", threads=1)
    key = {**llm.costs.key.to_json(), "cpu": "another one"}
    profile = {
        "format": FORMAT,
        "key": key,
        "measured_at": "",
        "model_name": "",
        "table": CONSERVATIVE_COSTS.to_json(),
        "drafters": {},
        "parts": {},
        "spread": 0.0,
        "tries": 1,
    }
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(profile), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"theirs.json was measured elsewhere .*cpu: 'another one', here"):
        LLM(model, "auto", threads=1, profile=path)
    path.write_text(json.dumps({**profile, "key": llm.costs.key.to_json()}), encoding="utf-8")
    assert LLM(model, "auto", threads=1, profile=path).engine.costs == CONSERVATIVE_COSTS


def test_a_damaged_profile_is_measured_again_with_one_warning(
    model: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "paceline")  # tests of the command line leave it at INFO
    path = LLM(model, "none", threads=1, profile="auto").costs.path
    path.parent.mkdir()
    path.write_text('{"format": 1, "key"', encoding="utf-8")
    LLM(model, "auto", threads=1, profile="auto")
    damaged, measuring = [record.getMessage() for record in caplog.records]
    assert "damaged" in damaged
    assert measuring.startswith("measuring what ")
    assert json.loads(path.read_text(encoding="utf-8"))["format"] == FORMAT


@pytest.mark.usefixtures("cache")
def test_a_drafter_that_cannot_be_measured_is_assumed(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    llm = LLM(model, "none", threads=1, profile="auto")

    def broken(row: object, seconds: float) -> None:
        raise ValueError("NaN")

    part = costs.DrafterPart("eagle3:broken", "1 byte", broken)
    with caplog.at_level(logging.WARNING):
        table = llm.costs.table(part)
    assert "eagle3:broken cannot be measured" in caplog.text
    assert table.cost_of("eagle3:broken") == CONSERVATIVE_COSTS.cost_of("eagle3")


def test_the_setting_and_its_variable(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert costs.profile_setting(None) == "off"  # tests/conftest.py
    monkeypatch.delenv(costs.PROFILE_VARIABLE)
    assert costs.profile_setting(None) == "auto"
    monkeypatch.setenv(costs.PROFILE_VARIABLE, "nowhere.json")
    with pytest.raises(ConfigError, match=r"profile='nowhere.json': give 'auto', 'off' or the path"):
        costs.profile_setting(None)
    assert costs.profile_setting(model) == model
    for wrong in ("", 3):
        with pytest.raises(ConfigError, match="profile="):
            costs.profile_setting(wrong)  # type: ignore[arg-type]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], list[Profile]]:
    """Return what says what a start will measure: seconds of a row, and spread. No clock is read."""

    def will(row_seconds: float, spread: float) -> list[Profile]:
        done: list[Profile] = []

        def measure(target: costs.Target, parts: object, known: Profile | None) -> Profile:
            assert known is None
            table = replace(CONSERVATIVE_COSTS, row_seconds=row_seconds)
            done.append(Profile(target.key, "now", target.name, table, spread=spread))
            return done[-1]

        monkeypatch.setattr(costs, "measure_profile", measure)
        return done

    return will


def test_what_a_busy_machine_measured_is_marked_and_measured_again_by_later_starts(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    measured: Callable[[float, float], list[Profile]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """r(2) = 1.31 and r(8) = 2.54, measured beside other programs (1.06, 1.94 alone), were kept for good."""
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    caplog.set_level(logging.WARNING, "paceline")
    done = measured(0.005, 0.7)
    llm = LLM(model, "auto", threads=1, profile="auto")
    llm.costs.table()
    assert len(done) == 1, "once in a process"
    assert "equal steps differ by 70 %" in caplog.text and "paceline profile --refresh" in caplog.text
    assert len(caplog.records) == 1
    kept = store.read_profile(llm.costs.path)
    assert kept.is_disturbed and kept.is_provisional
    done = measured(0.0026, 0.05)
    assert LLM(model, "auto", threads=1, profile="auto").engine.costs.row_seconds == 0.0026
    assert len(done) == len(caplog.records) == 1
    assert not store.read_profile(llm.costs.path).is_disturbed
    done = measured(0.001, 0.0)
    assert LLM(model, "auto", threads=1, profile="auto").engine.costs.row_seconds == 0.0026
    assert not done


def test_a_machine_that_is_never_quiet_is_not_measured_for_ever(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    measured: Callable[[float, float], list[Profile]],
) -> None:
    """Of busy measurements the one with the faster row is kept: noise only adds time."""
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    rows = []
    for row_seconds in (0.005, 0.004, 0.006, 0.001):
        measured(row_seconds, 0.5)
        rows.append(LLM(model, "auto", threads=1, profile="auto").engine.costs.row_seconds)
    assert rows == [0.005, 0.004, 0.004, 0.004]
    measured(0.007, 0.05)
    llm = LLM(model, "auto", threads=1, profile="auto")
    assert llm.engine.costs.row_seconds == 0.004
    assert llm.measure_costs().table.row_seconds == 0.007, "--refresh measures in any case"


def test_a_kept_profile_learns_what_a_worse_one_measured_of_drafters(model: Path) -> None:
    key = LLM(model, "none", threads=1).costs.key
    head = {"eagle3:x": DraftCost(0.1, 0.02)}
    known = Profile(key, "", "", replace(CONSERVATIVE_COSTS, row_seconds=0.004), spread=0.5)
    table = replace(CONSERVATIVE_COSTS, row_seconds=0.005, draft_costs=head)
    found = costs._better(known, Profile(key, "", "", table, {"eagle3:x": "7 bytes"}, spread=0.5))
    assert (found.table.row_seconds, found.tries) == (0.004, 2)
    assert found.table.cost_of("eagle3:x") == head["eagle3:x"]
    assert found.drafters == {"eagle3:x": "7 bytes"}
