"""A fixed text to judge language models by, and their perplexity on it.

The text is the standard library's own documentation: always there, English prose with code, and the same for
every run with one version of Python.
"""

from __future__ import annotations

import argparse
import calendar
import collections
import contextlib
import decimal
import difflib
import functools
import heapq
import inspect
import itertools
import json
import logging
import statistics
import string
import subprocess
import textwrap
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

_MODULES: tuple[ModuleType, ...] = (
    argparse,
    statistics,
    heapq,
    difflib,
    textwrap,
    contextlib,
    json,
    collections,
    functools,
    string,
    subprocess,
    calendar,
    itertools,
    decimal,
    logging,
)


def documentation_text(characters: int) -> str:
    """Return that many characters of docstrings, module by module, names in alphabetical order."""
    pieces: list[str] = []
    for module in _MODULES:
        pieces.append(inspect.getdoc(module) or "")
        for name, member in sorted(vars(module).items()):
            documented = inspect.isfunction(member) or inspect.isclass(member)
            if documented and member.__module__ == module.__name__ and not name.startswith("_"):
                pieces.append(f"{name}: {inspect.getdoc(member) or ''}")
    text = "\n\n".join(piece.strip() for piece in pieces if piece)
    if len(text) < characters:
        raise AssertionError(f"the standard library documents itself in only {len(text)} characters")
    return text[:characters]


def log_losses(logits: Any, tokens: list[int]) -> npt.NDArray[np.float64]:
    """Return -log p of every token but the first; ``logits`` [T or T - 1, V] is a torch tensor."""
    import torch

    predicted = logits[: len(tokens) - 1]
    chosen = predicted.gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]
    losses: npt.NDArray[np.float64] = (torch.logsumexp(predicted, -1) - chosen).double().numpy()
    return losses
