"""Text and calls are found however a reply is cut into pieces, in each form that models write calls in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.sampling.grammar import GrammarCompiler
from paceline.server.calls import CallReader
from paceline.server.schema import Function, Tool
from paceline.server.tools import HERMES, LLAMA3, CallForm, ToolUse

pytest.importorskip("llguidance")

OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
TOOLS = tuple(Tool(type="function", function=Function(name=name, parameters=OBJECT)) for name in ("f", "g-2"))
ONE = '{"a": "} ]\\" \\\\"}'
TWO = '{"a": "</tool_call>"}'


def use(form: CallForm, is_forced: bool = False, is_parallel: bool = True) -> ToolUse:
    return ToolUse(form, TOOLS, TOOLS, is_forced, is_parallel)


def read(of: ToolUse, text: str, size: int) -> tuple[str, list[tuple[str, str]], bool]:
    """Return the text, the calls, and whether the reply ends with a whole one."""
    reader = CallReader(of)
    shown = ""
    calls: list[tuple[str, str]] = []
    for start in range(0, len(text), size):
        found = reader.push(text[start : start + size])
        shown += found.text
        for piece in found.calls:
            if piece.name is not None:
                assert piece.index == len(calls)
                calls.append((piece.name, piece.arguments))
            else:
                assert piece.index == len(calls) - 1
                calls[-1] = (calls[-1][0], calls[-1][1] + piece.arguments)
    return shown + reader.end(), calls, reader.has_called


@pytest.mark.parametrize("size", [1, 2, 3, 7, 29, 500])
def test_pieces(size: int) -> None:
    one, two = HERMES.write("g-2", ONE), HERMES.write("f", TWO)
    calls = [("g-2", ONE), ("f", TWO)]
    assert read(use(HERMES), "I  look <tool\n\n" + one + "\n" + two, size) == ("I  look <tool", calls, True)
    assert read(use(HERMES, is_forced=True), one + "\n" + two, size) == ("", calls, True)
    assert read(use(HERMES), "no <tool_cal call \n ", size) == ("no <tool_cal call \n ", [], False)
    assert read(use(HERMES), "ends <tool_call", size) == ("ends <tool_call", [], False)
    llama = LLAMA3.write("g-2", ONE)
    assert read(use(LLAMA3), llama, size) == ("", calls[:1], True)
    assert read(use(LLAMA3, is_forced=True), llama, size) == ("", calls[:1], True)
    assert read(use(LLAMA3), '{"name": 3} ' + llama, size) == ('{"name": 3} ' + llama, [], False)
    assert read(use(LLAMA3), '{"nam', size) == ('{"nam', [], False)


@pytest.mark.parametrize("size", [1, 4, 500])
def test_replies_that_were_cut_short(size: int) -> None:
    text = "so:\n" + HERMES.write("f", ONE)
    for cut in range(len(text)):
        shown, calls, has_called = read(use(HERMES), text[:cut], size)
        ended = ONE in text[:cut]
        assert has_called == ended
        if calls:
            assert shown == "so:"
            assert calls == [("f", text[:cut].partition('"arguments": ')[2][: len(ONE)])]
        else:
            assert (text[:cut] if "<tool_call>" not in text[:cut] else "so:") == shown


def test_what_the_grammar_allows(served_model: Path) -> None:
    """Exactly what the reader reads: any text, and calls of known functions with arguments that fit."""
    from paceline.models.loading import load_model_files

    with load_model_files(served_model) as files:
        tokenizer = files.tokenizer
    compiler = GrammarCompiler(tokenizer)

    def allows(of: ToolUse, text: str, body: dict[str, object] | None = None) -> bool:
        matcher = compiler.lark(of.grammar(body)).start()._matcher
        ids = [*tokenizer.encode(text, add_bos=False), tokenizer.eos_token_id]
        return bool(matcher.validate_tokens(ids) == len(ids))

    one, two = HERMES.write("f", ONE), HERMES.write("g-2", TWO)
    for parallel in (True, False):
        hermes = use(HERMES, is_parallel=parallel)
        for text in ("", "plain {\n", "a <tool_cal", one, f"first\n{two}"):
            assert allows(hermes, text), text
        for text in (f"{one} tail", f"{one}\n", "<tool_call>", "a<tool_call>b", one.replace('"f"', '"h"')):
            assert not allows(hermes, text), text
        assert allows(hermes, f"a\n{one}\n{two}\n{one}") == parallel
        assert not allows(hermes, HERMES.write("f", '{"a": 1}'))
        forced = use(HERMES, is_forced=True, is_parallel=parallel)
        assert allows(forced, one)
        assert not allows(forced, "")
        assert not allows(forced, f"a\n{one}")
        assert allows(forced, f"{one}\n{two}") == parallel
        assert allows(hermes, '{"a": "b"}', OBJECT)
        assert allows(hermes, one, OBJECT)
        assert not allows(hermes, "a", OBJECT)
    llama = use(LLAMA3)
    for text in ("", "text", '{"name": 3}', LLAMA3.write("f", ONE), f" {LLAMA3.write('f', ONE)}"):
        assert allows(llama, text), text
    for text in (LLAMA3.write("h", ONE), '{"name": "f"}', f"{LLAMA3.write('f', ONE)}\n"):
        assert not allows(llama, text), text
    assert allows(use(LLAMA3, is_forced=True), LLAMA3.write("g-2", TWO))
    assert not allows(use(LLAMA3, is_forced=True), "text")
    assert json.loads(ONE) and json.loads(TWO)
