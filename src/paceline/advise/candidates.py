"""Every drafter a model could have, and whether it fits: built-in ones, shipped heads, files that are there.

Nothing is loaded to find out but headers, vocabularies and a head's small tensors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from paceline.errors import ConfigError, ModelFileError, PacelineError
from paceline.models.catalog import CATALOG, cached_path

if TYPE_CHECKING:
    from paceline.llm import LLM

Kind = Literal["built-in", "head", "draft model"]
SEARCH_DEPTH = 4
"""Folders below the one that was named; a model lies in one or two."""
MOST_FOUND = 200
MOST_OF_TARGET = 0.8
"""A draft model that reads more than this share of the target's bytes saves nothing: one of its steps costs
nearly a forward, and a step needs several."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible drafter. ``drafter``: the name that --drafter takes.

    ``fits``: whether it can draft for the target at all; ``is_measured``: whether that could be worth while.
    ``about``: why not, or what it is.
    """

    drafter: str
    kind: Kind
    fits: bool
    is_measured: bool
    about: str


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A model or a head on disk. ``name``: how it is asked for. ``num_bytes``: of its weights."""

    name: str
    path: Path
    is_head: bool
    num_bytes: int


def find_candidates(llm: LLM, drafter_dir: Path | None) -> list[Candidate]:
    """Return every candidate for the model of ``llm``, built-in ones first.

    Raises ``ConfigError`` when ``drafter_dir`` is no folder.
    """
    files = [*cached_files(), *hub_files(), *(files_in(drafter_dir) if drafter_dir is not None else ())]
    unique = {file.path.resolve(): file for file in files}
    unique.pop(llm.model_files.path.resolve(), None)
    target_bytes = weight_bytes(llm.model_files.path)
    found = [
        _head(llm, file) if file.is_head else _draft_model(llm, file, target_bytes)
        for file in unique.values()
    ]
    return [*built_in(llm), *sorted(found, key=lambda candidate: (not candidate.fits, candidate.drafter))]


def built_in(llm: LLM) -> list[Candidate]:
    """Return what comes with Paceline."""
    plain = {
        "ngram": "copies what followed the same tokens earlier in the request",
        "suffix": "as ngram, by frequency, from past replies too",
        "recycle": "the target's own latest runners-up",
    }
    found = [Candidate(name, "built-in", True, True, about) for name, about in plain.items()]
    found.append(
        Candidate("prediction", "built-in", True, False, "needs text that the caller expects, per request")
    )
    found.append(_shipped_head(llm))
    found.append(Candidate("auto", "built-in", True, True, "chooses among these at every step"))
    return found


def _shipped_head(llm: LLM) -> Candidate:
    try:
        llm.engine.drafter("eagle3")
    except PacelineError as error:
        return Candidate("eagle3", "head", False, False, str(error))
    return Candidate("eagle3", "head", True, True, "the head that comes with Paceline for this model")


# ---- what lies on disk ----


def cached_files() -> Iterator[FoundFile]:
    """Yield the catalog's models that have been fetched."""
    for name in CATALOG:
        path = cached_path(name)
        if path is not None:
            yield FoundFile(name, path, False, weight_bytes(path))


def hub_files() -> Iterator[FoundFile]:
    """Yield the models in huggingface_hub's cache: folders, and single GGUF files by name."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except (CacheNotFound, OSError, ValueError):
        return
    for repository in sorted(repositories, key=lambda repo: repo.repo_id):
        if repository.repo_type != "model":
            continue
        for revision in repository.revisions:
            for file in files_in(revision.snapshot_path):
                is_folder = file.path.is_dir()
                name = f"hf:{repository.repo_id}" + ("" if is_folder else f":{file.path.name}")
                yield FoundFile(name, file.path, file.is_head, file.num_bytes)


def files_in(folder: Path) -> Iterator[FoundFile]:
    """Yield GGUF files and model folders in ``folder`` and below. Raises ``ConfigError`` if it is none."""
    if not folder.is_dir():
        raise ConfigError(
            f"drafter_dir={str(folder)!r} is no folder: name the one that holds heads or models"
        )
    for found, path in enumerate(_walk(folder, SEARCH_DEPTH)):
        if found == MOST_FOUND:
            raise ConfigError(
                f"drafter_dir={str(folder)!r} holds more than {MOST_FOUND} models: name a smaller folder"
            )
        yield FoundFile(str(path.absolute()), path, is_head(path), weight_bytes(path))


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Yield model files and folders; a model's folder is not searched further."""
    if (folder / "config.json").is_file():
        yield folder
        return
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir() and depth > 0:
            yield from _walk(entry, depth - 1)
        elif entry.suffix == ".gguf" and entry.is_file():
            yield entry


def is_head(path: Path) -> bool:
    """Return whether a file or folder says that it is an EAGLE-3 head; ``False`` when it cannot be read."""
    try:
        if path.is_dir():
            config = json.loads((path / "config.json").read_text(encoding="utf-8"))
            names = " ".join(map(str, config.get("architectures") or ()))
            return "draft_vocab_size" in config or "eagle_config" in config or "eagle" in names.lower()
        from paceline.models.eagle3_gguf import HEAD_TYPES
        from paceline.models.gguf_file import read_gguf_header

        return read_gguf_header(path, HEAD_TYPES).metadata.get("general.architecture") == "eagle3"
    except (OSError, ValueError, AttributeError, PacelineError):
        return False


def weight_bytes(path: Path) -> int:
    """Return the bytes of a model's weights on disk."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for kind in ("*.safetensors", "*.bin") for file in path.glob(kind))


# ---- does it fit? ----


def _head(llm: LLM, file: FoundFile) -> Candidate:
    from paceline.models.eagle3 import check_fit, open_eagle3

    drafter, spec = f"eagle3:{file.name}", llm.model_files.spec
    try:
        files = open_eagle3(file.path, spec)
        try:
            check_fit(files, spec, llm.tokenizer.tokens)
        finally:
            files.source.close()
    except (PacelineError, OSError) as error:
        return Candidate(drafter, "head", False, False, str(error))
    layers = ", ".join(map(str, files.spec.layers_of(spec.num_layers)))
    about = (
        f"EAGLE-3 head, {files.spec.num_layers} layer of width {files.spec.hidden_size}, reads the states "
        f"that enter layers {layers}, drafts {files.spec.draft_vocab_size} of {files.spec.vocab_size} tokens"
    )
    return Candidate(drafter, "head", True, True, about)


def _draft_model(llm: LLM, file: FoundFile, target_bytes: int) -> Candidate:
    from paceline.models.loading import load_model_files
    from paceline.models.vocabulary import shared_vocabulary_size

    drafter = f"draft_model:{file.name}"
    try:
        with load_model_files(file.path) as files:
            if not files.spec.num_layers:
                raise ModelFileError(f"{file.path} has no layers")
            shared_vocabulary_size(llm.tokenizer.tokens, files.tokenizer.tokens, file.name)
    except (PacelineError, OSError) as error:
        return Candidate(drafter, "draft model", False, False, str(error))
    spec = files.spec
    share = file.num_bytes / max(1, target_bytes)
    about = (
        f"{spec.name}, {spec.num_layers} layers of width {spec.hidden_size}, {file.num_bytes / 1e6:.0f} MB "
        f"({share:.0%} of the target's)"
    )
    if share > MOST_OF_TARGET:
        return Candidate(drafter, "draft model", True, False, f"{about}: too large to pay")
    return Candidate(drafter, "draft model", True, True, about)
