"""``paceline bench compare``: changes are found, noise is not, and what cannot be compared is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from paceline.bench.compare import Change, compare_runs
from paceline.bench.runfile import RunFile, differences
from paceline.bench.samples import Numbers, Samples
from paceline.cli.bench_compare import compare
from paceline.errors import ConfigError

LENGTHS = np.random.default_rng(1).lognormal(3.0, 0.5, size=(12, 1)).round()


def samples(seconds: Numbers, drafted: float = 0.0, accepted: float = 0.0) -> Samples:
    tokens = np.broadcast_to(LENGTHS, seconds.shape)
    per_step = 1.0 + accepted
    return Samples(
        units=tuple(range(len(seconds))),
        replies=np.ones_like(seconds),
        seconds=seconds,
        tokens=tokens,
        steps=tokens / per_step,
        drafted=tokens * drafted,
        accepted=tokens * accepted,
        ttft_s=seconds / 10,
    )


def run_entry(workload: str, drafter: str, found: Samples, identical: float = 1.0) -> dict[str, Any]:
    entry = {"workload": workload, "drafter": drafter, "model": "m (m.gguf)", "batch": 1, "temperature": 0.0}
    return {**entry, "identical_share": identical, "samples": found.to_json()}


def write_run(
    path: Path, seed: int, *, gain: float = 1.4, slowdown: float = 1.0, identical: float = 1.0, **other: Any
) -> Path:
    """Write a run of two workloads, 12 prompts, 5 repeats: noise of 5 % in each reply, of 2 % in each repeat.

    ``gain``: true speed-up of the drafter. ``slowdown``: of the whole machine.
    """
    rng = np.random.default_rng(seed)
    runs = []
    for workload in ("chat", "code"):
        mood = slowdown * rng.lognormal(0.0, 0.02, size=(1, 5))
        plain, mine = (LENGTHS * mood * rng.lognormal(0.0, 0.05, size=(12, 5)) / 100 for _ in range(2))
        runs.append(run_entry(workload, "none", samples(plain)))
        runs.append(run_entry(workload, "ngram", samples(mine / gain, 1.0, 0.5), identical))
    data = {
        "kind": "offline",
        "settings": {"max_tokens": 128, "seed": 0, "unseeded": False, "first_turn": False, "repeats": 5},
        "environment": {"cpu": "a cpu", "cores": 2, "threads": 2, "instruction_path": "avx2"},
        "model_bytes": 7,
        "prompts_digest": "abc",
        "runs": runs,
    }
    data.update(other)
    path.write_text(json.dumps(data))
    return path


def judged(tmp_path: Path, *runs: dict[str, Any], figures: Sequence[str] = ("speedup",)) -> list[Change]:
    before, after = (
        RunFile.read(write_run(tmp_path / f"{index}.json", index, **run)) for index, run in enumerate(runs)
    )
    return compare_runs(before, after, figures)


def test_a_lost_gain_is_found_and_a_new_one_too(tmp_path: Path) -> None:
    changes = judged(tmp_path, {"gain": 1.4}, {"gain": 1.25})
    assert [(change.case[0], change.case[1], change.verdict) for change in changes] == [
        ("chat", "ngram", "worse"),
        ("code", "ngram", "worse"),
    ]
    assert all(change.low < 1.25 / 1.4 < change.high for change in changes)
    assert {change.verdict for change in judged(tmp_path, {"gain": 1.25}, {"gain": 1.4})} == {"better"}


def test_a_slow_machine_is_seen_in_speeds_and_not_in_the_speedup(tmp_path: Path) -> None:
    changes = judged(tmp_path, {}, {"slowdown": 1.3}, figures=("speedup", "tokens_per_s", "ttft_s"))
    verdicts = {(change.case[1], change.figure): change.verdict for change in changes}
    assert verdicts == {
        ("none", "tokens_per_s"): "worse",
        ("none", "ttft_s"): "worse",
        ("ngram", "speedup"): "same",
        ("ngram", "tokens_per_s"): "worse",
        ("ngram", "ttft_s"): "worse",
    }


def test_noise_is_no_change(tmp_path: Path) -> None:
    """Forty pairs of runs of one program. At 5 % false alarms, nine or more come with probability 4e-4 in a
    fair draw; the seeds are fixed."""
    paths = [write_run(tmp_path / f"{seed}.json", seed) for seed in range(41)]
    runs = [RunFile.read(path) for path in paths]
    alarms = sum(any(change.verdict != "same" for change in compare_runs(*pair)) for pair in pairwise(runs))
    assert alarms <= 8


def test_one_reply_that_differs_is_a_regression(tmp_path: Path) -> None:
    before, after = {}, {"identical": 0.99}
    assert {change.verdict for change in judged(tmp_path, before, after, figures=["identical_share"])} == {
        "worse"
    }


def test_a_single_prompt_and_repeat_shows_no_noise(tmp_path: Path) -> None:
    paths = []
    for seconds in (1.0, 9.0):
        one = Samples((0,), *(np.full((1, 1), value) for value in (1.0, seconds, 8.0, 8.0, 0.0, 0.0, 0.1)))
        paths.append(tmp_path / f"{seconds}.json")
        write_run(paths[-1], 0, runs=[run_entry("chat", "none", one)])
    changes = compare_runs(*(RunFile.read(path) for path in paths))
    assert {change.verdict for change in changes} == {"unclear"}


def status(*paths: Path, **options: Any) -> int:
    given = {"only": None, "tolerance": 0.0, "everything": False, "force": False, **options}
    try:
        compare(*paths, **given)
    except typer.Exit as end:
        return end.exit_code
    return 0


def test_the_command_prints_changes_and_its_status_says_regression(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = write_run(tmp_path / "a.json", 1), write_run(tmp_path / "b.json", 2, gain=1.2)
    assert status(good, bad, only="speedup,identical_share") == 1
    out = capsys.readouterr().out
    assert out.count("worse") == 2 + 1
    assert "4 figures: 0 better, 2 worse, 2 within noise" in out
    assert status(bad, good, only="speedup") == 0
    assert "2 better, 0 worse" in capsys.readouterr().out
    assert status(good, bad, only="speedup", tolerance=0.3) == 0
    assert status(good, good) == 0
    out = capsys.readouterr().out
    assert "0 better, 0 worse" in out
    assert "identical_share" not in out
    assert status(good, good, everything=True) == 0
    assert "identical_share" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"--only 'speedups' is no figure \(did you mean 'speedup'\?\)"):
        status(good, bad, only="speedups")


MACHINE = {"cpu": "another", "cores": 2, "threads": 2, "instruction_path": "avx2"}
SETTINGS = {"max_tokens": 64, "seed": 0, "unseeded": False, "first_turn": False}


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"environment": MACHINE}, "machine: cpu: 'a cpu' and 'another'"),
        ({"settings": SETTINGS}, "max_tokens: 128 and 64"),
        ({"model_bytes": 8}, "size of the model: 7 and 8 bytes"),
        ({"prompts_digest": "d"}, "prompts: other ones"),
    ],
)
def test_runs_that_do_not_compare_say_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: dict[str, Any], named: str
) -> None:
    one, two = write_run(tmp_path / "a.json", 1), write_run(tmp_path / "b.json", 1, **other)
    with pytest.raises(ConfigError, match="--force compares them all the same") as caught:
        status(one, two)
    assert named in str(caught.value)
    assert status(one, two, force=True) == 0
    assert named in capsys.readouterr().err


def test_another_model_is_named_and_cases_of_one_run_alone_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = write_run(tmp_path / "a.json", 1), write_run(tmp_path / "b.json", 1)
    data = json.loads(two.read_text())
    for run in data["runs"]:
        run["model"] = "other"
    two.write_text(json.dumps(data))
    assert list(differences(RunFile.read(one), RunFile.read(two))) == ["model: 'm (m.gguf)' and 'other'"]
    data["runs"] = data["runs"][:2]
    two.write_text(json.dumps(data))
    assert status(one, two, force=True) == 0
    assert "only before: code · ngram · batch 1 · 0" in capsys.readouterr().out
    data["runs"][0]["workload"] = data["runs"][1]["workload"] = "elsewhere"
    two.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match="nothing in them can be paired"):
        status(one, two, force=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("[]", "holds a JSON list"),
        ('{"kind": "load"}', "its kind is 'load'"),
        ('{"runs": [], "settings": {}}', "an earlier one wrote it"),
        ('{"kind": "offline"}', "lacks what a run of the bench holds"),
        ('{"kind": "offline", "runs": [], "settings": {}, "environment": {}}', "holds no runs"),
        ('{"kind": "offline", "runs": [3], "settings": {}, "environment": {}}', "lacks what a run"),
        ('{"kind": "offl', "is not JSON"),
    ],
)
def test_files_that_are_no_runs(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        RunFile.read(path)
    with pytest.raises(ConfigError, match=r"gone.json cannot be read: No such file"):
        RunFile.read(tmp_path / "gone.json")
