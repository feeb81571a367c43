"""Needs are stated, and what cannot fit is refused before anything is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.errors import ConfigError
from paceline.models.eagle3_spec import Eagle3Spec
from paceline.models.spec import RopeSpec
from paceline.train import resources
from paceline.train.resources import (
    Need,
    available_memory,
    check_disk,
    check_memory,
    disk_need,
    fit_memory,
    head_parameters,
    parse_size,
)

SPEC = Eagle3Spec(
    name="h",
    hidden_size=576,
    target_hidden_size=576,
    num_layers=1,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    ffn_size=1536,
    vocab_size=49152,
    draft_vocab_size=8192,
    max_context=8192,
    norm_eps=1e-5,
    rope=RopeSpec((1.0,) * 32, "half_split"),
    layer_windows=(0,),
)


def test_parameters_are_those_of_the_trained_head() -> None:
    pytest.importorskip("torch")
    from paceline.train.head import tensor_shapes

    total = 0
    for shape in tensor_shapes(SPEC).values():
        size = 1
        for dim in shape:
            size *= dim
        total += size
    assert head_parameters(SPEC) == total


def test_the_largest_parts_are_named_first() -> None:
    need = disk_need(1000, 300_000, 4 * 576, head_parameters(SPEC), None)
    assert need.parts["states"] == 300_000 * (2 * 4 * 576 + 4)
    assert need.describe().startswith("1.7 GB (states 1.4 GB, checkpoints")
    assert disk_need(1000, 300_000, 4 * 576, head_parameters(SPEC), 10**9).parts["states"] == 10**9
    assert fit_memory(SPEC, 49152, 4000, 5).total < 2e9


def test_a_disk_that_is_too_small_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "free_bytes", lambda folder: 3 * 10**9)
    check_disk(Need({"states": 10**9}), tmp_path)
    with pytest.raises(
        ConfigError, match=r"needs up to 5\.0 GB \(states 5\.0 GB\).*3\.0 GB are free.*--max-disk"
    ):
        check_disk(Need({"states": 5 * 10**9}), tmp_path)


def test_memory_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "available_memory", lambda: 10**9)
    check_memory(Need({"head": 10**8}), "fit", "less")
    with pytest.raises(ConfigError, match=r"fit needs about 2\.0 GB .* but 1\.0 GB are free: less"):
        check_memory(Need({"head": 2 * 10**9}), "fit", "less")
    monkeypatch.setattr(resources, "available_memory", lambda: None)
    check_memory(Need({"head": 10**15}), "fit", "less")


def test_a_containers_limit_counts(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    assert available_memory(meminfo, tmp_path) is None
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable:    5000 kB\n")
    assert available_memory(meminfo, tmp_path) == 5000 * 1024
    (tmp_path / "memory.current").write_text("1000000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(meminfo, tmp_path) == 5000 * 1024
    (tmp_path / "memory.max").write_text("3000000\n")
    assert available_memory(meminfo, tmp_path) == 2_000_000


@pytest.mark.parametrize(
    ("text", "size"), [("20GB", 20 * 10**9), ("1.5 mb", 1_500_000), ("700", 700), ("2TB", 2 * 10**12)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-3GB", "3 apples", "0", "1e40", "nan"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ConfigError, match="such as 20GB"):
        parse_size(text)
