"""A shipped head is found by the weights of its target, whatever file they are in."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from paceline.errors import ModelFileError
from paceline.models.eagle3_export import read_provenance
from paceline.models.loading import load_model_files
from paceline.models.shipped_heads import HEADS, shipped_head, target_fingerprint
from support.tiny_models import write_tiny_gguf, write_tiny_hf

ROOT = Path(__file__).resolve().parent.parent.parent
MOST_BYTES = 12_000_000
"""Of a head that everyone downloads with the package."""


def fingerprint(path: Path) -> str:
    with load_model_files(path) as files:
        return target_fingerprint(files.spec, files.source)


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_every_file_of_one_model_has_the_same_fingerprint(tmp_path: Path, arch: str) -> None:
    """Norms have the same values in GGUF files and folders, Gemma's + 1 included."""
    gguf_file = write_tiny_gguf(tmp_path / "a.gguf", arch, "q8_0", seed=3)
    folder = write_tiny_hf(tmp_path / "folder", arch, "q8_0", seed=3)
    other = write_tiny_gguf(tmp_path / "b.gguf", arch, "q8_0", seed=4)
    assert fingerprint(gguf_file) == fingerprint(folder) != fingerprint(other)
    assert len(fingerprint(other)) == 32


def test_the_index_leads_to_the_folder(tmp_path: Path) -> None:
    assert shipped_head("f" * 32, tmp_path) is None  # nothing ships
    index = tmp_path / "index.json"
    index.write_text(json.dumps({"a" * 32: "tiny"}))
    assert shipped_head("f" * 32, tmp_path) is None
    with pytest.raises(ModelFileError, match=r"names the head 'tiny', but .* is missing"):
        shipped_head("a" * 32, tmp_path)
    (tmp_path / "tiny").mkdir()
    assert shipped_head("a" * 32, tmp_path) == tmp_path / "tiny"
    for damaged in ("{", "[]"):
        index.write_text(damaged)
        with pytest.raises(ModelFileError, match="install again"):
            shipped_head("a" * 32, tmp_path)


def test_every_head_of_the_package_is_there() -> None:
    """Each is one small file that says where it comes from, with its card."""
    index = HEADS / "index.json"
    for known in json.loads(index.read_text(encoding="utf-8")) if index.is_file() else {}:
        folder = shipped_head(known)
        assert folder is not None
        assert sorted(path.name for path in folder.iterdir()) == ["README.md", "head.gguf"]
        assert (folder / "head.gguf").stat().st_size <= MOST_BYTES
        assert {"target_sha256", "data", "command", "stages"} <= set(read_provenance(folder))


def test_heads_are_in_the_packages(tmp_path: Path) -> None:
    """The build leaves out what git ignores, and git ignores *.gguf: users would get cards without heads."""
    pytest.importorskip("scikit_build_core")
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    project = tmp_path / "project"
    folder = project / "src" / "paceline" / "heads" / "tiny"
    folder.mkdir(parents=True)
    (project / "src" / "paceline" / "__init__.py").touch()
    (project / "stray.gguf").touch()
    shipped = {"heads/index.json", "heads/tiny/head.gguf", "heads/tiny/README.md"}
    for name in shipped:
        (project / "src" / "paceline" / name).touch()
    for name in ("pyproject.toml", ".gitignore", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(x LANGUAGES NONE)\n"
    )
    sdist = tmp_path / build(project, "build_sdist", tmp_path)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
        names = archive.getnames()
    assert not [name for name in names if name.endswith("stray.gguf")]
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    with zipfile.ZipFile(tmp_path / build(unpacked, "build_wheel", tmp_path)) as wheel:
        assert {f"paceline/{name}" for name in shipped} <= set(wheel.namelist())


def build(project: Path, hook: str, out: Path) -> str:
    """Call a hook of the build backend (PEP 517) in ``project``; return the name of what it built."""
    code = f"import scikit_build_core.build as b; print(b.{hook}({str(out)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]
