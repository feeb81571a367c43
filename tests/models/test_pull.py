"""Fetching models: found on any index, resumed, checked, and never half there."""

from __future__ import annotations

import errno
import hashlib
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.errors import ConfigError, DownloadError, ModelNotFoundError
from paceline.models import catalog, download, pull
from paceline.models.catalog import CatalogEntry, WheelPart
from paceline.models.package_index import find_wheel, pip_settings
from support.file_server import Site, serve

CONTENT = bytes(range(256)) * 20000  # 5 MB
HALVES = {"part1": CONTENT[: len(CONTENT) // 2], "part2": CONTENT[len(CONTENT) // 2 :]}


def entry(**changes: Any) -> CatalogEntry:
    values: dict[str, Any] = {
        "name": "toy",
        "file_name": "toy.gguf",
        "parts": (WheelPart("toy-part1", "1.0", "toy/data.0"), WheelPart("toy-part2", "1.0", "toy/data.1")),
        "size": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "about": "a toy",
        "licence": "none",
        **changes,
    }
    return CatalogEntry(**values)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An index that serves the toy model, pip set to it, an empty cache, and no waiting between tries."""
    toy = Site()
    toy.add_wheel("toy-part1", "1.0", {"toy/data.0": HALVES["part1"]})
    toy.add_wheel("toy-part1", "0.9", {"toy/data.0": b"older"})
    toy.add_wheel("toy-part2", "1.0", {"toy/data.1": HALVES["part2"]})
    monkeypatch.setattr(catalog, "CATALOG", {"toy": entry()})
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_CERT", "PIP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(download.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(download, "CHUNK_BYTES", 1 << 16)
    with serve(toy):
        monkeypatch.setenv("PIP_INDEX_URL", f"{toy.url}/simple")
        yield toy


def fetch(accept_terms: bool = False) -> Path:
    return pull.pull_catalog_model("toy", accept_terms=accept_terms, progress=lambda *_: None)


def left_behind(tmp_path: Path) -> list[str]:
    return sorted(
        str(p.relative_to(tmp_path / "cache")) for p in (tmp_path / "cache").rglob("*") if p.is_file()
    )


@pytest.mark.parametrize("json_api", [True, False])
def test_parts_are_joined_and_the_wheels_removed(site: Site, tmp_path: Path, json_api: bool) -> None:
    site.json_api = json_api
    assert catalog.cached_path("toy") is None
    path = fetch()
    assert path.read_bytes() == CONTENT
    assert left_behind(tmp_path) == ["models/toy/toy.gguf"]
    assert catalog.cached_path("toy") == path == catalog.resolve_model("toy")
    site.requests.clear()
    assert fetch() == path and site.requests == []


def test_progress_is_told(site: Site) -> None:
    seen: list[tuple[str, int, int]] = []
    pull.pull_catalog_model("toy", accept_terms=False, progress=lambda *args: seen.append(args))
    labels = dict.fromkeys(label for label, _, _ in seen)
    assert list(labels) == ["toy (1 of 2)", "toy (2 of 2)", "unpacking"]
    assert seen[-1] == ("unpacking", len(CONTENT), len(CONTENT))
    assert all(0 < done <= total for _, done, total in seen)


def test_a_cut_connection_is_resumed_at_once(site: Site) -> None:
    site.cuts = [100_000, 200_000, 0, 300_000]
    assert fetch().read_bytes() == CONTENT
    ranges = [sent for path, sent in site.requests if "part1" in path and "files" in path]
    assert ranges == [None, "bytes=100000-", "bytes=300000-", "bytes=300000-", "bytes=600000-"]


def test_a_hopeless_line_keeps_the_part_for_the_next_call(site: Site, tmp_path: Path) -> None:
    site.cuts = [150_000] + [0] * download.MAX_FAILURES
    with pytest.raises(DownloadError, match=r"What has arrived is kept: run the same command again"):
        fetch()
    assert left_behind(tmp_path) == ["downloads/toy_part1-1.0-py3-none-any.whl.part"]
    site.requests.clear()
    assert fetch().read_bytes() == CONTENT
    assert ("/files/toy_part1-1.0-py3-none-any.whl", "bytes=150000-") in site.requests


def test_a_server_without_ranges_starts_over(site: Site) -> None:
    site.cuts, site.ignores_range = [100_000], True
    assert fetch().read_bytes() == CONTENT


def test_a_part_with_a_wrong_checksum_is_dropped(site: Site, tmp_path: Path) -> None:
    name = "toy_part1-1.0-py3-none-any.whl"
    part = tmp_path / "cache" / "downloads" / f"{name}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1000)
    with pytest.raises(DownloadError, match="wrong checksum and was removed"):
        fetch()
    assert left_behind(tmp_path) == []
    assert fetch().read_bytes() == CONTENT


def test_a_whole_part_is_used(site: Site, tmp_path: Path) -> None:
    name = "toy_part1-1.0-py3-none-any.whl"
    part = tmp_path / "cache" / "downloads" / f"{name}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(site.files[name])
    site.json_api = False  # no size: the server answers 416
    assert fetch().read_bytes() == CONTENT


def test_another_file_under_the_same_name_is_refused(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "CATALOG", {"toy": entry(sha256="0" * 64)})
    with pytest.raises(DownloadError, match="expected 0000"):
        fetch()
    assert not (tmp_path / "cache" / "models" / "toy" / "toy.gguf").exists()
    assert not list((tmp_path / "cache" / "models").rglob("*.part"))


def test_damaged_and_foreign_wheels(site: Site, tmp_path: Path) -> None:
    name = site.add_wheel("toy-part2", "1.0", {"other": b"x"})
    with pytest.raises(DownloadError, match="damaged"):
        fetch()
    site.files[name] = b"no zip"
    site.hashes[name] = hashlib.sha256(b"no zip").hexdigest()
    with pytest.raises(DownloadError, match="damaged"):
        fetch()
    assert left_behind(tmp_path) == []


def test_a_wheel_without_a_hash_is_refused(site: Site) -> None:
    site.hashes["toy_part1-1.0-py3-none-any.whl"] = ""
    with pytest.raises(DownloadError, match="no sha256"):
        fetch()


class FullDisk:
    """A file that takes so many bytes and then says that the disk is full."""

    def __init__(self, file: Any, room: int) -> None:
        self._file, self._room = file, room

    def write(self, data: bytes) -> int:
        self._room -= len(data)
        if self._room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(self._file.write(data))

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *args: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize("mode", ["ab", "wb"])
def test_a_disk_that_fills_up(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """While downloading (ab) and while unpacking (wb): one clear error and nothing half-written."""
    real_open = Path.open

    def limited(self: Path, how: str = "r", *args: Any, **options: Any) -> Any:
        file = real_open(self, how, *args, **options)
        return FullDisk(file, 1_000_000) if how == mode and self.name.endswith(".part") else file

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", limited)
        with pytest.raises(DownloadError, match=r"No space left on device.*PACELINE_CACHE"):
            fetch()
    assert not [name for name in left_behind(tmp_path) if name.endswith(".part")]
    assert catalog.cached_path("toy") is None
    assert fetch().read_bytes() == CONTENT


def test_a_disk_with_too_little_room(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DownloadError, match="0 MB free, but 5 MB are needed"):
        fetch()
    assert not [path for path, _ in site.requests if "files" in path]


def test_a_cache_that_cannot_be_written(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match="cannot write to"):
        fetch()


def test_a_corrupt_copy_in_the_cache_is_fetched_again(site: Site) -> None:
    path = fetch()
    path.write_bytes(bytes(len(CONTENT)))
    assert fetch().read_bytes() == CONTENT


def test_pulls_at_the_same_time_wait_for_each_other(site: Site, tmp_path: Path) -> None:
    """Two terminals pulling one model appended to the same part: both failed, and the proxy was blamed."""
    with ThreadPoolExecutor(3) as pool:
        paths = list(pool.map(lambda _: fetch(), range(3)))
    assert paths == [tmp_path / "cache" / "models" / "toy" / "toy.gguf"] * 3
    assert paths[0].read_bytes() == CONTENT
    assert not list((tmp_path / "cache" / "downloads").iterdir())


def test_terms_must_be_accepted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "CATALOG", {"toy": entry(terms="These are the terms.")})
    with pytest.raises(ConfigError, match=r"(?s)These are the terms.*--accept-terms"):
        fetch()
    assert site.requests == []
    assert fetch(accept_terms=True).read_bytes() == CONTENT


def test_the_second_index_is_asked_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file:///nowhere {site.url}/simple")
    assert fetch().read_bytes() == CONTENT


def test_credentials_of_the_index_are_sent_and_not_shown(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.password = "Basic bWU6c2VjcmV0"  # me:secret
    with pytest.raises(DownloadError, match="answered 401"):
        fetch()
    monkeypatch.setenv("PIP_INDEX_URL", f"{site.url.replace('//', '//me:secret@')}/simple")
    assert find_wheel("toy-part1", "1.0", pip_settings()).sha256
    with pytest.raises(DownloadError) as caught:
        find_wheel("toy-part1", "7.0", pip_settings())
    assert "secret" not in str(caught.value) and "has no wheel of that version" in str(caught.value)


def test_a_file_index(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "simple" / "toy-part1"
    page.mkdir(parents=True)
    (page / "index.html").write_text('<a href="toy_part1-1.0-py3-none-any.whl#sha256=ab">x</a>')
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    wheel = find_wheel("toy-part1", "1.0", pip_settings())
    assert wheel.sha256 == "ab" and wheel.url.endswith("/toy-part1/toy_part1-1.0-py3-none-any.whl")


def test_settings_come_from_pips_files_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://one/simple\ncert = /a.pem\n[download]\nproxy = http://p:1\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path))
    for name in ("PIP_INDEX_URL", "PIP_CERT", "PIP_PROXY", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    settings = pip_settings()
    assert (settings.urls[0], settings.ca_file, settings.proxy) == (
        "https://one/simple",
        "/a.pem",
        "http://p:1",
    )
    monkeypatch.setenv("PIP_INDEX_URL", "https://two/simple")
    monkeypatch.setenv("PIP_CERT", "/b.pem")
    assert (pip_settings().urls[0], pip_settings().ca_file) == ("https://two/simple", "/b.pem")
    file.write_text("index-url = broken")
    with pytest.raises(DownloadError, match="cannot be read"):
        pip_settings()


def test_a_missing_certificate_bundle_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CERT", "/nowhere.pem")
    with pytest.raises(DownloadError, match=r"'/nowhere.pem' .*cannot be read"):
        fetch()


def test_names_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    with pytest.raises(ModelNotFoundError, match="did you mean 'smollm2-135m'"):
        catalog.resolve_model("smolm2-135m")
    with pytest.raises(ModelNotFoundError, match="run `paceline pull smollm2-135m`"):
        catalog.resolve_model("smollm2-135m")
    with pytest.raises(ModelNotFoundError, match=r"neither config\.json nor a GGUF file"):
        catalog.resolve_model(tmp_path)
    (tmp_path / "a.gguf").write_bytes(b"")
    assert catalog.resolve_model(tmp_path) == tmp_path / "a.gguf"
    (tmp_path / "b.gguf").write_bytes(b"")
    with pytest.raises(ModelNotFoundError, match="2 GGUF files"):
        catalog.resolve_model(tmp_path)
    monkeypatch.delenv("PACELINE_CACHE")
    assert catalog.cache_dir().name == "paceline"


def cli() -> Any:
    import typer

    from paceline.cli.models import models as models_command
    from paceline.cli.pull import pull as pull_command

    app = typer.Typer()
    app.command()(models_command)
    app.command()(pull_command)
    return app


def test_commands(site: Site, tmp_path: Path) -> None:
    runner = CliRunner()
    listed = runner.invoke(cli(), ["models"])
    assert listed.exit_code == 0 and "toy" in listed.output and "no" in listed.output
    pulled = runner.invoke(cli(), ["pull", "toy"])
    assert pulled.exit_code == 0
    # Without a terminal there is no bar: a long fetch printed nothing at all.
    assert pulled.stderr.splitlines() == [
        "paceline: fetching toy, 5 MB; this may take minutes",
        "paceline: fetched toy",
    ]
    assert runner.invoke(cli(), ["pull", "toy"]).stderr == "", "it is there already"
    assert str(tmp_path / "cache" / "models" / "toy" / "toy.gguf") in pulled.output.replace("\n", "")
    shown = runner.invoke(cli(), ["models", "--path", "toy"])
    assert shown.output.strip() == str(catalog.cached_path("toy"))
