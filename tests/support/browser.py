"""A real headless browser for tests, or the reason why there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# As root a browser has no sandbox; the rest keeps it from calling home, which here would only be refused.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def why_no_browser() -> str:
    """Return what is missing, an empty string when nothing is."""
    if find_spec("playwright") is None:
        return "playwright is not installed (dependency group test)"
    return "" if _program() else f"none of {', '.join(NAMES)} is installed (Debian: apt-get install chromium)"


def _program() -> str | None:
    return next((found for found in map(shutil.which, NAMES) if found), None)


@contextmanager
def browser() -> Iterator[Any]:
    """Start Chromium. Skips with the reason without one; where PACELINE_REQUIRE_BROWSER is set, fails."""
    reason = why_no_browser()
    if reason and os.environ.get("PACELINE_REQUIRE_BROWSER"):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=_program(), args=list(FLAGS), timeout=120_000)
        try:
            yield started
        finally:
            started.close()
