"""Wrong settings and malformed batches end in clear errors, never in a crash."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paceline.errors import ConfigError
from paceline.executors import cpu
from paceline.executors.cpu import ISA_VARIABLE
from support.native_batches import Rows, batch_of, int32, load_executor, run
from support.tiny_models import write_tiny_gguf

ROWS = Rows((1, 2, 3), 0, (0, 1))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "m.gguf", "llama", "q4_0")


def test_unknown_instruction_path_names_the_valid_ones(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ISA_VARIABLE, "avx511")
    with pytest.raises(ConfigError, match=r"avx511.*portable"):
        load_executor(model)


@pytest.mark.parametrize("threads", [0, -1, 1000])
def test_bad_thread_counts_are_refused(model: Path, threads: int) -> None:
    with pytest.raises(ConfigError, match=f"^threads={threads}:"):
        load_executor(model, num_threads=threads)


def test_more_layers_than_there_are_is_refused(model: Path) -> None:
    with pytest.raises(ConfigError, match="num_layers must be 1 to 2, not 3"):
        load_executor(model).first_layers(3, num_blocks=2)


@pytest.mark.parametrize("layers", [[], [-1], [0, 3]])
def test_states_of_layers_that_are_not_there_are_refused(model: Path, layers: list[int]) -> None:
    with pytest.raises(ConfigError, match="0 to 2"):
        load_executor(model).forward_with_states(batch_of(ROWS), layers)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": int32([1, 2, 10**6])}, "token id out of range"),
        ({"tokens": int32([1, -2, 3])}, "token id out of range"),
        ({"slots": int32([0, 1, 32])}, "slot outside the block table"),
        ({"blocks": int32([0, 99])}, "block id out of range"),
        ({"sequences": int32([0, 0, 1])}, "sequence index"),
        ({"prefix_lengths": int32([1, 2, 33])}, "prefix length"),
        ({"prefix_lengths": int32([0, 2, 3])}, "prefix length"),
        ({"tail_offsets": int32([0, 0, 0, 1]), "tails": int32([40])}, "tail slot"),
        ({"tail_offsets": int32([0, 1, 0, 0])}, "offsets"),
        ({"block_offsets": int32([0, 5])}, "offsets"),
        ({"logit_rows": int32([3])}, "logit row"),
        ({"slots": int32([0, 1])}, "differ in length"),
    ],
)
def test_malformed_batches_are_refused(model: Path, change: dict[str, np.ndarray], message: str) -> None:
    executor = load_executor(model)
    good = run(executor, ROWS)
    with pytest.raises(ValueError, match=message):
        executor.forward(replace(batch_of(ROWS), **change))
    assert run(executor, ROWS).tobytes() == good.tobytes(), "the executor is still usable"


def test_moving_slots_out_of_range_is_refused(model: Path) -> None:
    with pytest.raises(ValueError, match="slot out of range"):
        load_executor(model, num_blocks=2).move_slots(int32([0]), int32([32]))


def test_more_threads_than_processors_are_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """``--threads 99`` on two cores made everything slow, and nothing said why."""
    cpu._warn_of_too_many.cache_clear()
    with caplog.at_level(logging.WARNING, "paceline"):
        for threads in (1, 2, 99, 99):
            cpu._warn_of_too_many(threads, 2)
    (record,) = caplog.records
    assert record.getMessage().startswith("99 threads are more than the 2 processors")
