"""Grammars made to explode: each is refused or followed, soon, and nobody else notices."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from support.served import Served

PLAIN: dict[str, Any] = {"prompt": "the rest", "max_tokens": 6, "temperature": 0, "ignore_eos": True}
BOMBED: dict[str, Any] = {"prompt": "the", "max_tokens": 24, "temperature": 1.0, "seed": 1}
AT_MOST_SECONDS = 30.0
"""Far above what the worst one takes (half a second), far below what an exponential one would."""
DOUBLING = "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(60))
ALL_OF = [
    {"anyOf": [{"type": "object", "properties": {f"p{i}": {"const": j}}} for j in range(6)]} for i in range(8)
]

REGEXES = {
    "nested repetition": ("((a{1,900}){1,900}){1,900}", 200),
    "alternation": ("(a|a?)+$" * 200, 400),
    "backtracking": ("(x+x+)+y", 200),
    "exponential automaton": ("(a|b)*a(a|b){500}", 200),
    "every letter in order": ("(.*a.*b.*c.*d.*e.*f.*g.*h){20}", 200),
    "large class": ("\\p{L}{1,2000}", 200),
    "too long": ("[ab]" * 20_000, 400),
}
LARKS = {
    "ambiguous": ('start: a\na: a a a | a a | "x" |', 200),
    "endless": ("start: a\na: b\nb: a", 400),
    "doubling": (f'start: r0\n{DOUBLING}\nr60: "x"', 400),
}
SCHEMAS: dict[str, tuple[dict[str, Any], int]] = {
    "a billion items": ({"type": "array", "items": {"type": "integer"}, "minItems": 10**9}, 200),
    "a billion characters": ({"type": "string", "minLength": 10**9}, 200),
    "exponential pattern": ({"type": "string", "pattern": "^(a|b)*a(a|b){200}$"}, 200),
    "refers to itself": ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, 400),
    "products of choices": ({"allOf": ALL_OF}, 400),
    "many properties": (
        {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(1500)}},
        400,
    ),
    "numbers of 300 digits": ({"type": "integer", "minimum": -(10**300), "maximum": 10**300}, 400),
}
BOMBS = (
    {f"regex: {name}": ({"regex": source}, status) for name, (source, status) in REGEXES.items()}
    | {f"lark: {name}": ({"grammar": source}, status) for name, (source, status) in LARKS.items()}
    | {f"schema: {name}": ({"json": source}, status) for name, (source, status) in SCHEMAS.items()}
)


@pytest.mark.parametrize(("given", "status"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_ends_soon_and_alone(served: Served, given: dict[str, Any], status: int) -> None:
    """Two of them could be compiled but not followed. They failed while their token was committed, which
    failed the step, and with it every request in the batch.
    """
    expected = served.post("/v1/completions", PLAIN).json()["choices"]
    answers: list[Any] = []
    done = threading.Event()

    def ask_meanwhile() -> None:
        while not done.is_set():
            answers.append(served.post("/v1/completions", PLAIN))

    other = threading.Thread(target=ask_meanwhile)
    other.start()
    began = time.monotonic()
    answer = served.post("/v1/completions", {**BOMBED, "structured_outputs": given})
    took = time.monotonic() - began
    done.set()
    other.join()
    assert answer.status_code == status, answer.text
    assert took < AT_MOST_SECONDS
    assert all(answer.status_code == 200 for answer in answers)
    assert all(answer.json()["choices"] == expected for answer in answers)
    assert max(answer.elapsed.total_seconds() for answer in answers) < AT_MOST_SECONDS
    if status == 400:
        assert len(answer.content) < 4000
