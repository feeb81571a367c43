"""A fit that is stopped the hard way loses the steps since its last checkpoint, and nothing else."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.train.fit import BEST, CHECKPOINT
from paceline.train.storage import PART
from support.tiny_fit import EVERY, NUM_STEPS, half_saved, make_fit

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The head of a run that nobody stopped."""
    run = make_fit(tmp_path_factory.mktemp("whole"))
    run.run()
    return run.head.state_dict()


def finish(folder: Path, whole: dict[str, torch.Tensor]) -> list[int]:
    """Run the rest, check that it ends with the same bits, and return the steps that were made again."""
    steps: list[int] = []
    run = make_fit(folder)
    run.run(lambda progress: steps.append(progress.step))
    assert all(torch.equal(value, whole[name]) for name, value in run.head.state_dict().items())
    return steps


@pytest.mark.skipif(os.name != "posix", reason="there is no kill -9")
def test_kill_9_in_the_middle_of_a_checkpoint(tmp_path: Path, whole: dict[str, torch.Tensor]) -> None:
    program = (
        "from pathlib import Path; from support.tiny_fit import die_while_saving, make_fit; "
        f"die_while_saving(3); make_fit(Path({str(tmp_path)!r})).run()"
    )
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert (tmp_path / (CHECKPOINT + PART)).stat().st_size > 0, "it was killed while it wrote"
    assert finish(tmp_path, whole) == list(range(2 * EVERY + 1, NUM_STEPS + 1))
    assert sorted(path.name for path in tmp_path.iterdir()) == [BEST, CHECKPOINT]


def test_a_full_disk_leaves_the_last_checkpoint_whole(
    tmp_path: Path, whole: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    save = torch.save

    def full(state: dict[str, Any], file: Any) -> None:
        if state["step"] > 2 * EVERY:
            half_saved(state, file)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(state, file)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        make_fit(tmp_path).run()
    assert sorted(path.name for path in tmp_path.iterdir()) == [BEST, CHECKPOINT]
    assert torch.load(tmp_path / CHECKPOINT, weights_only=True)["step"] == 2 * EVERY
    monkeypatch.setattr(torch, "save", save)
    assert finish(tmp_path, whole) == list(range(2 * EVERY + 1, NUM_STEPS + 1))
