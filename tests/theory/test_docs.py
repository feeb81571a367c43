"""The worked examples of docs/theory.md and of the docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import numpy as np
import pytest

from paceline import theory

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "theory.md"
MODULES = [f"paceline.theory.{module.name}" for module in pkgutil.iter_modules(theory.__path__)]


def test_the_guide() -> None:
    results = doctest.testfile(str(GUIDE), module_relative=False)
    assert results.attempted >= 20
    assert results.failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    names = {key: getattr(theory, key) for key in theory.__all__}
    module = importlib.import_module(name)
    assert doctest.testmod(module, extraglobs={"np": np, **names}).failed == 0


def test_the_guide_corrects_the_circulating_figure() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert "3.20 circulates for these values. It is wrong; 3.05 is right" in text
