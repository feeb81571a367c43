"""A stage is taken from disk only when it was finished, and from the same inputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import ConfigError
from paceline.train.stage import STAGE_FILE, only_run_in, redo, run_stage


def test_a_finished_stage_is_not_run_again(tmp_path: Path) -> None:
    calls: list[Path] = []

    def work(folder: Path) -> dict[str, Any]:
        calls.append(folder)
        return {"answer": 42, "pairs": [(1, 2)]}

    first = run_stage(tmp_path, "one", {"a": (1, 2), "b": "x"}, work)
    again = run_stage(tmp_path, "one", {"a": [1, 2], "b": "x"}, work)
    assert calls == [tmp_path / "one"]
    assert (first.was_done, again.was_done) == (False, True)
    assert first.values == again.values == {"answer": 42, "pairs": [[1, 2]]}
    assert first.digest == again.digest


def test_an_interrupted_stage_finds_its_folder_and_is_run_again(tmp_path: Path) -> None:
    def interrupted(folder: Path) -> dict[str, Any]:
        (folder / "part").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(tmp_path, "one", {}, interrupted)
    result = run_stage(tmp_path, "one", {}, lambda folder: {"text": (folder / "part").read_text()})
    assert (result.values, result.was_done) == ({"text": "half"}, False)


def test_other_inputs_are_named_and_refused(tmp_path: Path) -> None:
    run_stage(tmp_path, "one", {"seed": 1, "model": "m"}, lambda folder: {})
    with pytest.raises(ConfigError, match=r"other inputs \(seed: was 1, is 2\).*--redo one"):
        run_stage(tmp_path, "one", {"seed": 2, "model": "m"}, lambda folder: {})
    with pytest.raises(ConfigError, match="limit: was None, is 3"):
        run_stage(tmp_path, "one", {"seed": 1, "model": "m", "limit": 3}, lambda folder: {})


def test_digests_tell_inputs_and_results_apart(tmp_path: Path) -> None:
    results = [
        run_stage(tmp_path / str(n), "one", {"seed": seed}, lambda folder, v=value: {"v": v})
        for n, (seed, value) in enumerate([(1, 1), (1, 2), (2, 1)])
    ]
    assert len({result.digest for result in results}) == 3


def test_redo_deletes_a_stage_and_those_behind_it(tmp_path: Path) -> None:
    names = ("one", "two", "three")
    for name in names:
        run_stage(tmp_path, name, {}, lambda folder: {})
    (tmp_path / "three" / STAGE_FILE).unlink()
    (tmp_path / "three" / "thesis.txt").write_text("not ours")
    redo(tmp_path, names, "two")
    assert (tmp_path / "one" / STAGE_FILE).exists()
    assert not (tmp_path / "two").exists()
    assert (tmp_path / "three" / "thesis.txt").exists(), "a folder that no stage made is not deleted"


def test_a_damaged_marker_is_an_error(tmp_path: Path) -> None:
    run_stage(tmp_path, "one", {}, lambda folder: {})
    (tmp_path / "one" / STAGE_FILE).write_text(json.dumps({"inputs": {}})[:-3])
    with pytest.raises(ConfigError, match="cannot be read"):
        run_stage(tmp_path, "one", {}, lambda folder: {})


HOLD = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from paceline.train.stage import only_run_in
with only_run_in(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match="another training run works"), only_run_in(tmp_path):
            pass
        other.kill()
    with only_run_in(tmp_path):
        pass
