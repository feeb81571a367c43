"""What the servers are asked. Every prompt is sent to a server once, so that none is answered from memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest

from paceline.bench.datasets import WORKLOADS, BenchPrompt, load_workload

WARM_UP = BenchPrompt("probe", "probe", ("Say hello.",))
"""Taken by the probe of the load driver."""
_TEXT = """
river mountain teacher window garden bridge market winter letter engine harbor village forest island
kitchen doctor summer morning station silver captain valley number paper music yellow corner animal
street picture country family water story table green light metal cloud stone horse apple field
"""
_WORDS = _TEXT.split()


def warm_ups(count: int) -> list[BenchPrompt]:
    """Return short prompts that no measurement asks again."""
    return [BenchPrompt(f"warm{i}", "warm", (f"What is {i} plus {i * i + 7}?",)) for i in range(count)]


def chat_prompts() -> list[BenchPrompt]:
    """Return the chat workload."""
    return load_workload("chat")


def mixed_prompts(count: int) -> list[BenchPrompt]:
    """Return ``count`` prompts of all workloads, which take turns. Raises ``SystemExit`` if they run out."""
    columns = [load_workload(name) for name in WORKLOADS]
    found = [prompt for prompt in chain.from_iterable(zip_longest(*columns)) if prompt is not None]
    if count > len(found):
        raise SystemExit(f"the workloads have {len(found)} prompts, not the {count} that were asked for")
    return found[:count]


def sized_text(tokens: int, seed: int, length: Callable[[str], int]) -> str:
    """Return words in an order of ``seed`` for which ``length`` is at least ``tokens``, and hardly more."""
    rng = random.Random(seed)
    words = [rng.choice(_WORDS) for _ in range(tokens // 2)]
    while length(" ".join(words)) < tokens:
        words.append(rng.choice(_WORDS))
    return " ".join(words)


def sized_prompts(
    tokens: int, count: int, seed: int, length: Callable[[BenchPrompt], int]
) -> list[BenchPrompt]:
    """Return prompts of ``tokens`` tokens as the model sees them, no two of which begin alike."""

    def prompt(text: str, number: int) -> BenchPrompt:
        return BenchPrompt(f"sized{number}", "sized", (f"Continue this list of words: {text}",))

    return [
        prompt(sized_text(tokens, seed + i, lambda text, i=i: length(prompt(text, i))), i)  # type: ignore[misc]
        for i in range(count)
    ]


def shared_prompts(tokens: int, count: int, seed: int, length: Callable[[str], int]) -> list[BenchPrompt]:
    """Return ``count`` pairs: two questions behind one system prompt of ``tokens`` tokens, each its own."""
    pairs: list[BenchPrompt] = []
    for i in range(count):
        system = sized_text(tokens, seed + i, length)
        questions = ("Which word came first?", "Which word came last?")
        pairs += [BenchPrompt(f"shared{i}", "shared", (text,), (("system", system),)) for text in questions]
    return pairs


def halves(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return what the first and the second of each pair gave."""
    return list(values[::2]), list(values[1::2])
