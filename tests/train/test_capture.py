"""Capture writes what the executor gives, whole shards only, and goes on where it was stopped."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.errors import ConfigError
from paceline.train.capture import capture, capture_layers, capture_passes, sequence_bytes
from paceline.train.captured import CapturedData, CaptureForm, from_bfloat16, to_bfloat16
from paceline.train.rows import Row
from support.state_executor import StateExecutor, expected_states, tiny_spec

LAYERS = (2, 4, 5, 8)
HIDDEN = 6
FORM = CaptureForm("target", LAYERS, HIDDEN, "fake")


def make_rows(lengths: Sequence[int], seed: int = 0) -> list[Row]:
    rng = np.random.default_rng(seed)
    rows = []
    for number, length in enumerate(lengths):
        ids = tuple(rng.integers(0, 64, length).tolist())
        cut = max(1, length // 3)
        rows.append(Row(f"row-{number}", "test", ids[:cut], ids[cut:], 0.0))
    return rows


def run(rows: list[Row], out: Path, executor: StateExecutor | None = None, **options: Any) -> CapturedData:
    return capture(
        executor or StateExecutor(), iter(rows), out, layers=LAYERS, target="target", **options
    ).data


def check(data: CapturedData, rows: list[Row]) -> None:
    assert len(data) == len(rows)
    for item, row in zip(data, rows, strict=True):
        assert (item.id, item.source) == (row.id, row.source)
        assert item.tokens.tolist() == list(row.tokens)
        assert item.response_start == len(row.prompt)
        expected = expected_states(row.tokens, LAYERS, HIDDEN)
        assert np.array_equal(item.states, to_bfloat16(expected))
    data.check()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_each_sequence_keeps_its_own_tokens_and_states(tmp_path: Path) -> None:
    """Short ones share a pass, one longer than a pass is cut; neither may mix up rows."""
    rows = make_rows([5, 40, 1, 130, 700, 3, 511, 2])
    executor = StateExecutor()
    data = run(rows, tmp_path / "c", executor)
    check(data, rows)
    assert executor.sizes == [176, 512, 188, 3, 511, 2]
    assert data.num_tokens == 1392
    assert data.num_response_tokens == sum(len(row.response) for row in rows)


def test_many_short_sequences_share_a_small_cache(tmp_path: Path) -> None:
    """Each takes a whole block: sixty of three tokens are 180 rows, and no cache of 64 blocks holds 100."""
    rows = make_rows([3] * 100)
    executor = StateExecutor(num_blocks=64)
    check(run(rows, tmp_path / "c", executor), rows)
    assert executor.sizes == [192, 108]


def test_shards_are_bounded_and_hold_whole_sequences(tmp_path: Path) -> None:
    rows = make_rows([50] * 9)
    one = sequence_bytes(50, FORM)
    data = run(rows, tmp_path / "c", shard_bytes=2 * one + 1)
    assert [len(shard) for shard in data.shards] == [2, 2, 2, 2, 1]
    check(data, rows)
    sizes = sum(
        len(content) for name, content in files_of(tmp_path / "c").items() if not name.endswith("json")
    )
    assert sizes == 9 * one + 5 * 8, "what was estimated, and one more offset a shard"


@pytest.mark.parametrize("stop_at", range(5))
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), RuntimeError("broken"), OSError(errno.ENOSPC, "full")]
)
def test_an_interrupted_capture_goes_on_to_the_same_files(
    tmp_path: Path, stop_at: int, error: BaseException
) -> None:
    rows = make_rows([60] * 10)
    options = {"shard_bytes": 2 * sequence_bytes(60, FORM)}
    run(rows, tmp_path / "whole", **options)

    def stop(number: int) -> None:
        if number == stop_at:
            raise error

    with pytest.raises(type(error)):
        run(rows, tmp_path / "c", StateExecutor(before=stop), **options)
    left = files_of(tmp_path / "c")
    assert not [name for name in left if name.endswith(".part")]
    done: list[int] = []
    run(rows, tmp_path / "c", StateExecutor(), progress=done.append, **options)
    assert files_of(tmp_path / "c") == files_of(tmp_path / "whole")
    assert sum(done) == 600


def test_a_full_disk_leaves_no_half_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills while the small arrays are written, after the states are in place."""
    from paceline.train import storage

    def no_room(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    rows = make_rows([20] * 4)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(storage.os, "fsync", no_room)
        run(rows, tmp_path / "c")
    with pytest.raises(ConfigError, match="holds no captured states"):
        CapturedData(tmp_path / "c")
    check(run(rows, tmp_path / "c"), rows)


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from support.state_executor import StateExecutor
from paceline.train.capture import capture
from paceline.train.rows import Row
rows = [Row(f"row-{i}", "test", (1, 2), tuple((i + j) % 64 for j in range(40)), 0.0) for i in range(30)]
def before(number):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
capture(StateExecutor(before=before), rows, Path(sys.argv[1]), layers=(2, 4, 5, 8), target="t")
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX")
def test_kill_leaves_nothing_that_reads_as_whole(tmp_path: Path) -> None:
    """kill -9 runs no clean-up: what lies there afterwards is the evidence."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "c"), *sys.path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "c" / "states-0000.u16.part").exists()
    with pytest.raises(ConfigError, match="holds no captured states"):
        CapturedData(tmp_path / "c")
    rows = make_rows([30, 40])
    capture(StateExecutor(), rows, tmp_path / "c", layers=LAYERS, target="t")
    check(CapturedData(tmp_path / "c"), rows)
    assert not list((tmp_path / "c").glob("*.part"))


def test_max_disk_stops_before_it_is_passed(tmp_path: Path) -> None:
    rows = make_rows([50] * 9)
    one = sequence_bytes(50, FORM)
    options = {"layers": LAYERS, "target": "target", "shard_bytes": 2 * one}
    result = capture(StateExecutor(), rows, tmp_path / "c", max_disk=5 * one + 7, **options)
    assert (len(result.data), result.num_left_out) == (5, 4)
    result = capture(StateExecutor(), rows, tmp_path / "c", max_disk=7 * one, **options)
    assert (len(result.data), result.num_left_out) == (7, 2)
    check(result.data, rows[:7])
    with pytest.raises(ConfigError, match="nothing was captured"):
        capture(StateExecutor(), rows, tmp_path / "d", max_disk=one - 1, **options)


def test_other_rows_or_another_target_are_refused(tmp_path: Path) -> None:
    run(make_rows([30, 40]), tmp_path / "c")
    with pytest.raises(ConfigError, match="holds other rows"):
        run(make_rows([30, 41]), tmp_path / "c")
    with pytest.raises(ConfigError, match="holds states of"):
        capture(StateExecutor(), make_rows([30, 40]), tmp_path / "c", layers=LAYERS, target="other")


def test_damage_is_found(tmp_path: Path) -> None:
    data = run(make_rows([30, 40]), tmp_path / "c")
    path = tmp_path / "c" / "states-0000.u16"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\x55")
    with pytest.raises(ConfigError, match="is damaged"):
        data.check()
    path.write_bytes(content[:-2])
    with pytest.raises(ConfigError, match="instead of"):
        CapturedData(tmp_path / "c")


def test_states_that_are_not_finite_name_their_rows(tmp_path: Path) -> None:
    class Broken(StateExecutor):
        def forward_with_states(self, *arguments: Any) -> Any:
            logits, states = super().forward_with_states(*arguments)
            states[3, 1] = np.nan
            return logits, states

    with pytest.raises(ConfigError, match="not finite in one of the rows row-0"):
        run(make_rows([30]), tmp_path / "c", Broken())


def test_a_row_longer_than_the_cache_is_refused() -> None:
    with pytest.raises(ConfigError, match="need 5 KV blocks, but the cache has 4"):
        next(capture_passes([[1] * 65], 16, 4))


def test_layers_default_to_those_of_the_head_and_the_last() -> None:
    assert capture_layers(tiny_spec(30)) == (2, 15, 27, 30)
    assert capture_layers(tiny_spec(8), (1, 3)) == (1, 3, 8)
    with pytest.raises(ConfigError, match="need 6"):
        capture_layers(tiny_spec(4))
    with pytest.raises(ConfigError, match="ids 0 to 8"):
        capture_layers(tiny_spec(8), (1, 9))


def test_bfloat16_rounds_to_even() -> None:
    values = np.array([1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8, 1.0 + 2**-8 + 2**-20, -3.14159, 0.0], np.float32)
    expected = [1.0, 1.0, 1.0 + 2**-6, 1.0 + 2**-7, -3.140625, 0.0]
    assert from_bfloat16(to_bfloat16(values)).tolist() == expected
