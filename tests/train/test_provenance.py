"""A target is known by its weights, a head by what it was made from."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from paceline.train.provenance import describe, target_digest
from support.tiny_models import write_tiny_hf


def test_a_file_is_its_checksum(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"weights")
    assert target_digest(tmp_path / "m.gguf", "none") == hashlib.sha256(b"weights").hexdigest()


def test_a_folder_is_its_weights_and_their_conversion(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path / "hf")
    plain = target_digest(folder, "none")
    assert target_digest(folder, "q4") != plain, "other weights come out of the same folder"
    (folder / "README.md").write_text("nothing about weights")
    assert target_digest(folder, "none") == plain
    path = next(iter(folder.glob("*.safetensors")))
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    assert target_digest(folder, "none") != plain


def test_the_facts_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "my prompts.jsonl"
    data.write_text("{}")
    monkeypatch.setattr(sys, "argv", ["/bin/paceline", "train", "eagle3", "--prompts", "my prompts.jsonl"])
    facts = describe("smollm2-135m", "abc", [data]).to_json()
    assert facts["command"] == "paceline train eagle3 --prompts 'my prompts.jsonl'"
    assert facts["data"] == {"my prompts.jsonl": hashlib.sha256(b"{}").hexdigest()}
    assert facts["versions"]["numpy"]
    assert facts["target_sha256"] == "abc"


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "p.jsonl" for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(path.parent.name)
    assert list(describe("m", "abc", paths).data) == [str(path) for path in paths]
