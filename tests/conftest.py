"""Fixtures for all tests."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

# Libraries read this once, when they are first imported: tests share few cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Measuring takes seconds per model, and a busy machine would make decisions differ from run to run.
os.environ.setdefault("PACELINE_PROFILE", "off")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Take back what ``paceline serve`` set up: its handler writes to a test's stderr, closed by then."""
    loggers = [logging.getLogger(name) for name in ("paceline", "uvicorn", "uvicorn.access")]
    before = [(list(one.handlers), one.propagate, one.level, one.disabled) for one in loggers]
    yield
    for one, (handlers, propagate, level, disabled) in zip(loggers, before, strict=True):
        one.handlers[:] = handlers
        one.propagate, one.disabled = propagate, disabled
        one.setLevel(level)


def _missing(why: str) -> NoReturn:
    """Skip, or fail where ``PACELINE_REQUIRE_MODELS`` is set (CI): there a silent skip would hide a gap."""
    if os.environ.get("PACELINE_REQUIRE_MODELS"):
        pytest.fail(f"{why} (PACELINE_REQUIRE_MODELS is set)")
    pytest.skip(why)


def _real_model(file_name: str, catalog_name: str) -> Path:
    """Return a catalog model from ``PACELINE_TEST_MODELS`` (a folder) or from the cache."""
    folder = os.environ.get("PACELINE_TEST_MODELS")
    if folder is None:
        from paceline.models.catalog import cached_path

        path = cached_path(catalog_name)
        if path is None:
            _missing(f"{catalog_name} is not in the cache: run `paceline pull {catalog_name}`")
        return path
    path = Path(folder) / file_name
    if not path.is_file():
        _missing(f"{path} does not exist (PACELINE_TEST_MODELS={folder})")
    return path


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct in Q4_1."""
    return _real_model("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Gemma 3 270M (base) in Q4_K_M."""
    return _real_model("gemma-3-270m.Q4_K_M.gguf", "gemma3-270m")
