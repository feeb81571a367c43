"""Hub names, with a hub that is only pretended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

from paceline.errors import DownloadError, ModelNotFoundError
from paceline.models.catalog import resolve_model
from paceline.models.hub import FOLDER_FILES, parse_hub_name, pull_hub_model


def test_names() -> None:
    assert parse_hub_name("hf:org/repo.v1").file is None
    parsed = parse_hub_name("hf:org/repo:sub/model-Q4.gguf")
    assert (parsed.repo, parsed.file) == ("org/repo", "sub/model-Q4.gguf")
    for wrong in ("hf:", "hf:repo", "hf:a/b/c", "hf:a/b:", "hf:a/b:c:d", "hf:a b/c"):
        with pytest.raises(ModelNotFoundError, match="write hf:org/repo"):
            parse_hub_name(wrong)


def test_pull_fetches_a_file_or_what_a_folder_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def one(repo: str, file: str, **options: Any) -> str:
        asked.append((repo, file, options))
        return str(tmp_path / file)

    def folder(repo: str, **options: Any) -> str:
        asked.append((repo, options))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", one)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", folder)
    assert pull_hub_model("hf:o/r:m.gguf") == tmp_path / "m.gguf"
    assert pull_hub_model("hf:o/r") == tmp_path
    assert resolve_model("hf:o/r:m.gguf") == tmp_path / "m.gguf"
    assert asked == [
        ("o/r", "m.gguf", {}),
        ("o/r", {"allow_patterns": list(FOLDER_FILES)}),
        ("o/r", "m.gguf", {"local_files_only": True}),
    ]


@pytest.mark.parametrize(
    ("config", "others", "expected"),
    [
        ('{"draft_vocab_size": 32000}', [], ["pytorch_model.bin"]),
        ('{"draft_vocab_size": 32000}', ["model.safetensors"], []),
        ('{"model_type": "llama"}', [], []),
    ],
)
def test_only_a_head_without_safetensors_brings_its_binary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, others: list[str], expected: list[str]
) -> None:
    """SafeAILab's EAGLE-3 heads are pytorch_model.bin files; a whole model's would be a second copy of it."""
    (tmp_path / "config.json").write_text(config)
    for name in others:
        (tmp_path / name).touch()
    fetched: list[str] = []
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda repo, **options: str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda repo, file: fetched.append(file))
    assert pull_hub_model("hf:o/head") == tmp_path and fetched == expected


def response(code: int) -> Any:
    return SimpleNamespace(status_code=code, headers={}, request=None)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda: errors.RepositoryNotFoundError("x", response=response(404)), "does not exist on the hub"),
        (lambda: errors.GatedRepoError("x", response=response(403)), "asks for its terms"),
        (lambda: errors.HfHubHTTPError("x", response=response(500)), "run the same command again"),
        (lambda: OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_faults_of_the_hub(monkeypatch: pytest.MonkeyPatch, fault: Any, message: str) -> None:
    def fail(*args: Any, **options: Any) -> str:
        raise fault()

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    with pytest.raises(DownloadError, match=message):
        pull_hub_model("hf:o/r:m.gguf")


def test_what_was_not_fetched_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*args: Any, **options: Any) -> str:
        raise errors.LocalEntryNotFoundError("not there")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", absent)
    with pytest.raises(ModelNotFoundError, match="run `paceline pull hf:o/r`"):
        resolve_model("hf:o/r")
