"""Models on the Hugging Face hub: ``hf:org/repo`` (a folder) or ``hf:org/repo:file.gguf`` (one file)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import DownloadError, ModelNotFoundError

FOLDER_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "model.safetensors.index.json",
    "*.safetensors",
)
"""What of a repository makes a folder that can be loaded."""
HEAD_BINARY = "pytorch_model.bin"
"""Fetched for EAGLE-3 heads without safetensors alone: of a whole model it would be a second copy."""
_NAME = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<file>[^:]+))?")


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository on the hub and, for a GGUF file, which of its files."""

    repo: str
    file: str | None


def parse_hub_name(name: str) -> HubName:
    """Return the parts of ``hf:org/repo[:file]``. Raises ``ModelNotFoundError`` for any other form."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ModelNotFoundError(f"{name!r} is no hub name: write hf:org/repo or hf:org/repo:file.gguf")
    return HubName(match["repo"], match["file"])


def cached_hub_model(name: str) -> Path:
    """Return where a hub model lies in huggingface_hub's cache. Raises ``ModelNotFoundError`` else."""
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    parts = parse_hub_name(name)
    try:
        if parts.file is not None:
            return Path(hf_hub_download(parts.repo, parts.file, local_files_only=True))
        folder = snapshot_download(parts.repo, allow_patterns=list(FOLDER_FILES), local_files_only=True)
        return Path(folder)
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, FileNotFoundError) as error:
        raise ModelNotFoundError(f"{name} has not been fetched yet: run `paceline pull {name}`") from error


def pull_hub_model(name: str) -> Path:
    """Fetch a hub model (progress bars and resume are huggingface_hub's) and return where it lies.

    Raises ``DownloadError`` when the hub refuses, the repository or file does not exist, or the line breaks.
    """
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
    )

    parts = parse_hub_name(name)
    try:
        if parts.file is not None:
            return Path(hf_hub_download(parts.repo, parts.file))
        folder = Path(snapshot_download(parts.repo, allow_patterns=list(FOLDER_FILES)))
        if _is_old_head(folder):
            hf_hub_download(parts.repo, HEAD_BINARY)
        return folder
    except GatedRepoError as error:
        raise DownloadError(
            f"{parts.repo} asks for its terms to be accepted: do so on huggingface.co/{parts.repo}, then run "
            "`hf auth login`"
        ) from error
    except (RepositoryNotFoundError, EntryNotFoundError, HFValidationError) as error:
        raise DownloadError(f"{name} does not exist on the hub (or is private): check the name") from error
    except (HfHubHTTPError, OSError) as error:
        raise DownloadError(
            f"fetching {name} failed ({error}); what has arrived is kept: run the same command again"
        ) from error


def _is_old_head(folder: Path) -> bool:
    """Return whether a fetched folder is an EAGLE-3 head whose weights are not there as safetensors."""
    config = folder / "config.json"
    if not config.is_file() or list(folder.glob("*.safetensors")):
        return False
    text = config.read_text(encoding="utf-8", errors="replace")
    return '"draft_vocab_size"' in text or '"eagle_config"' in text
