"""Which drafters are found for a model, and what is said of those that do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline import LLM
from paceline.advise import candidates as looking
from paceline.advise.candidates import Candidate, files_in, find_candidates, is_head
from paceline.advise.run import open_all
from paceline.errors import ConfigError
from support.eagle3_gguf import write_gguf_head
from support.eagle3_heads import tiny_head
from support.tiny_models import write_tiny_gguf, write_tiny_hf


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path = write_tiny_gguf(tmp_path_factory.mktemp("target") / "tiny.gguf", "llama", "q8_0", seed=3)
    return LLM(path, drafter="none", threads=1, profile="off")


@pytest.fixture(autouse=True)
def _no_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What this machine has fetched is no part of a test."""
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "no-cache"))
    monkeypatch.setattr(looking, "hub_files", lambda: iter(()))


def by_name(found: list[Candidate]) -> dict[str, Candidate]:
    return {candidate.drafter: candidate for candidate in found}


def test_built_in_drafters_come_first_and_say_what_they_need(llm: LLM) -> None:
    found = by_name(find_candidates(llm, None))
    assert list(found)[:3] == ["ngram", "suffix", "recycle"]
    assert found["ngram"].is_measured and found["auto"].is_measured
    assert found["prediction"].fits and not found["prediction"].is_measured
    assert not found["eagle3"].fits and "no head comes with Paceline" in found["eagle3"].about


def test_models_and_heads_of_a_folder_are_found_with_their_reasons(llm: LLM, tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "same.gguf", "llama", "q4_0", seed=4)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    write_tiny_hf(tmp_path / "deep" / "er" / "folder", "qwen2", "q8_0", seed=5)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF but no more")
    (tmp_path / ".hidden").mkdir()
    write_tiny_gguf(tmp_path / ".hidden" / "x.gguf", "llama", "q4_0", seed=4)
    found = by_name(find_candidates(llm, tmp_path))
    same = found[f"draft_model:{tmp_path / 'same.gguf'}"]
    assert same.fits and "layers of width" in same.about and "% of the target's" in same.about
    broken = found[f"draft_model:{tmp_path / 'broken.gguf'}"]
    assert not broken.fits and "broken.gguf" in broken.about
    assert f"draft_model:{tmp_path / 'deep' / 'er' / 'folder'}" in found
    assert not any(".hidden" in name for name in found)


def test_another_vocabulary_names_the_first_id_and_both_strings(llm: LLM, tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path / "other", "llama", "q8_0", seed=5)
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = data["model"]["vocab"]
    first, second = sorted(vocabulary, key=vocabulary.get)[20:22]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    path.write_text(json.dumps(data), encoding="utf-8")
    candidate = by_name(find_candidates(llm, tmp_path))[f"draft_model:{folder}"]
    assert not candidate.fits
    assert f"id {vocabulary[second]} is {first!r} for the target and {second!r}" in candidate.about


def test_a_draft_model_as_large_as_the_target_is_not_measured(llm: LLM, tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "twin.gguf", "llama", "f16", seed=4)
    twin = by_name(find_candidates(llm, tmp_path))[f"draft_model:{tmp_path / 'twin.gguf'}"]
    assert twin.fits and not twin.is_measured and "too large to pay" in twin.about


def test_a_head_of_another_width_says_which(llm: LLM, tmp_path: Path) -> None:
    path = tmp_path / "head.gguf"
    write_gguf_head(path, tiny_head(target_hidden_size=96))
    assert is_head(path)
    head = by_name(find_candidates(llm, tmp_path))[f"eagle3:{path}"]
    assert not head.fits
    assert "reads states of 96 values" in head.about and "have 64" in head.about


def test_the_target_itself_is_no_candidate(llm: LLM) -> None:
    folder = llm.model_files.path.parent
    assert not any(candidate.kind == "draft model" for candidate in find_candidates(llm, folder))


def test_a_drafter_that_cannot_be_built_does_not_fit(llm: LLM, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "gone.gguf", "llama", "q4_0", seed=4)
    found = [Candidate(f"draft_model:{path}", "draft model", True, True, "fine")]
    path.unlink()
    (checked,) = open_all(llm, found)
    assert not checked.fits and not checked.is_measured and "gone.gguf" in checked.about


def test_a_folder_that_is_none_or_holds_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        list(files_in(tmp_path / "nothing"))
    for number in range(4):
        (tmp_path / f"{number}.gguf").write_bytes(b"")
    monkeypatch.setattr(looking, "MOST_FOUND", 3)
    with pytest.raises(ConfigError, match="more than 3 models"):
        list(files_in(tmp_path))
    assert not is_head(tmp_path / "0.gguf")
