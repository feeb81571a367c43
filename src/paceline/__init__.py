"""Paceline: exact speculative decoding.

    from paceline import LLM, SamplingParams
    LLM("smollm2-135m").generate("Hello", SamplingParams(temperature=0))

Names are imported when they are first used, so that ``import paceline`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.config import SpecConfig
    from paceline.engine.outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput
    from paceline.errors import PacelineError
    from paceline.llm import LLM
    from paceline.sampling.params import SamplingParams

__all__ = [
    "LLM",
    "CompletionOutput",
    "Logprob",
    "PacelineError",
    "RequestMetrics",
    "RequestOutput",
    "SamplingParams",
    "SpecConfig",
]

_HOMES = {
    "LLM": "paceline.llm",
    "CompletionOutput": "paceline.engine.outputs",
    "Logprob": "paceline.engine.outputs",
    "PacelineError": "paceline.errors",
    "RequestMetrics": "paceline.engine.outputs",
    "RequestOutput": "paceline.engine.outputs",
    "SamplingParams": "paceline.sampling.params",
    "SpecConfig": "paceline.config",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("paceline")
    if name not in _HOMES:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
