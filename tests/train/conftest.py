"""Training tests run unfused: compiling takes longer than all they compute. One test compares the two."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture(autouse=True)
def unfused(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave torch.compile out unless a test is marked ``fused``."""
    if "fused" not in request.keywords and importlib.util.find_spec("torch"):
        monkeypatch.setattr("paceline.train.fusing.can_fuse", lambda: False)
