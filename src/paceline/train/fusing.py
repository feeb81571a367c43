"""Element-wise steps fused by torch.compile where there is a C++ compiler, else run as they are written."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import ParamSpec, TypeVar

import torch

logger = logging.getLogger("paceline.train")

P = ParamSpec("P")
R = TypeVar("R")


@cache
def can_fuse() -> bool:
    """Return whether torch.compile works here (it needs a C++ compiler); says so once when it does not."""
    try:
        torch.compile(torch.neg, dynamic=True)(torch.ones(2))
    except Exception as error:  # whatever the compiler or its absence raises
        logger.warning("training runs unfused, about a third slower: torch.compile fails (%.200s)", error)
        return False
    return True


@cache
def _compiled(function: Callable[P, R]) -> Callable[P, R]:
    return torch.compile(function, dynamic=True)


def fused(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` compiled for any shape, or itself where compiling does not work."""
    return _compiled(function) if can_fuse() else function
