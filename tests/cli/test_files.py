"""Result files are whole or not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from paceline.cli.files import write_text
from paceline.errors import ConfigError


def test_a_full_disk_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file was cut to nothing before the new text had room: hours of an earlier run went with it."""
    out = tmp_path / "run.json"
    write_text(out, "old")

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for path in (out, tmp_path / "new.json"):
        with pytest.raises(ConfigError, match=r"cannot write .*No space left"):
            write_text(path, "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("run.json", "old")]


def test_ctrl_c_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(_handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "run.json", "new")
    assert list(tmp_path.iterdir()) == []


def test_rights_and_links_stay(tmp_path: Path) -> None:
    out, link = tmp_path / "run.json", tmp_path / "latest.json"
    write_text(out, "one")
    mask = os.umask(0)
    os.umask(mask)
    assert out.stat().st_mode & 0o777 == 0o666 & ~mask
    out.chmod(0o640)
    link.symlink_to(out)
    write_text(link, "two")
    assert link.is_symlink()
    assert (out.read_text(), out.stat().st_mode & 0o777) == ("two", 0o640)


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_text(Path(os.devnull), "text")
    assert not Path(os.devnull).is_file()
