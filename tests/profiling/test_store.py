"""Profiles on disk: whole, and only where they belong."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.errors import ConfigError
from paceline.profiling.machine import ProfileKey
from paceline.profiling.store import Profile, load_stored, read_profile, require_key, save, stored_path
from paceline.theory.cost_table import CostTable, DraftCost

KEY = ProfileKey("CPU one", 2, "avx512", "0123456789abcdef", 1000, "0.1.0")
PROFILE = Profile(
    KEY,
    "2026-11-30T00:00:00+00:00",
    "Model: one/two",
    CostTable(((1, 1.0), (2, 1.1)), 0.003, 0.0001, {"eagle3:x": DraftCost(0.1, 0.02)}),
    {"eagle3:x": "77 bytes"},
    {"eagle3:x: chain": 0.001},
    0.4,
    2,
)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    return stored_path(KEY, PROFILE.model_name)


def test_it_comes_back_as_it_was(path: Path, tmp_path: Path) -> None:
    save(PROFILE, path)
    assert load_stored(path, KEY) == PROFILE
    assert path.parent == tmp_path / "profiles"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_each_model_and_setting_has_its_own_file(path: Path) -> None:
    others = [replace(KEY, threads=4), replace(KEY, weight_bytes=9), replace(KEY, instruction_path="avx2")]
    assert len({path, *(stored_path(key, PROFILE.model_name) for key in others)}) == 4
    assert stored_path(KEY, "../..//").parent == path.parent
    assert stored_path(replace(KEY, cpu="CPU two", version="9"), PROFILE.model_name) == path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cpu": "CPU two"}, "cpu: 'CPU two', here 'CPU one'"),
        ({"version": "0.0.9"}, "version: '0.0.9', here '0.1.0'"),
        ({"threads": 8, "model": "other"}, "threads: 8, here 2; model: 'other'"),
    ],
)
def test_a_profile_from_elsewhere_is_refused(
    path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, object], message: str
) -> None:
    other = replace(PROFILE, key=replace(KEY, **change))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=message):
        require_key(other, KEY, path)
    save(other, path)
    with caplog.at_level(logging.WARNING):
        assert load_stored(path, KEY) is None
    assert len(caplog.records) == 1
    assert message in caplog.text
    assert "measured again" in caplog.text


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"format": 2}', json.dumps({**PROFILE.to_json(), "format": 1}), "\x00"],
)
def test_a_damaged_file_is_one_warning(path: Path, caplog: pytest.LogCaptureFixture, content: str) -> None:
    path.parent.mkdir()
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="damaged"):
        read_profile(path)
    with caplog.at_level(logging.WARNING):
        assert load_stored(path, KEY) is None
    assert len(caplog.records) == 1


def test_every_damaged_part_is_found(path: Path) -> None:
    whole = PROFILE.to_json()
    for name, value in [
        ("key", {}),
        ("key", {**whole["key"], "threads": "2"}),
        ("key", {**whole["key"], "cpu": None}),
        ("table", {**whole["table"], "row_seconds": 0}),
        ("drafters", []),
        ("parts", {"x": "slow"}),
        ("parts", {"x": None}),
        ("spread", None),
        ("tries", "many"),
    ]:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({**whole, name: value}), encoding="utf-8")
        with pytest.raises(ConfigError, match="damaged"):
            read_profile(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="damaged"):
        read_profile(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_profile(path.parent)


def test_a_failed_write_leaves_what_was_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(PROFILE, path)

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    save(replace(PROFILE, measured_at="later"), path)
    monkeypatch.undo()
    assert read_profile(path) == PROFILE
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_cache_that_cannot_be_written_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        save(PROFILE, tmp_path / "file" / "profiles" / "x.json")
    assert len(caplog.records) == 1
    assert "cannot be kept" in caplog.text
