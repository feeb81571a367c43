"""A shipped head is found by the weights of its target, whatever file they are in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.errors import ModelFileError
from paceline.models.loading import load_model_files
from paceline.models.shipped_heads import HEADS, shipped_head, target_fingerprint
from support.tiny_models import write_tiny_gguf, write_tiny_hf


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
    index = HEADS / "index.json"
    for known in json.loads(index.read_text(encoding="utf-8")) if index.is_file() else {}:
        assert shipped_head(known) is not None
