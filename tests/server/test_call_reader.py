"""Arguments of a forced call are found however the text is cut into pieces."""

from __future__ import annotations

import pytest

from paceline.server.constraints import CallReader
from paceline.server.schema import Function, Tool

TWO = [Tool(type="function", function=Function(name=name)) for name in ("f", "g-2")]
TEXT = '{"name": "g-2", "arguments": {"a": "}", "b": [1, 2]}}'


@pytest.mark.parametrize("size", [1, 2, 3, 7, 29, 100])
def test_pieces_of_a_call(size: int) -> None:
    reader = CallReader(TWO)
    pieces = [TEXT[start : start + size] for start in range(0, len(TEXT), size)]
    found = [reader.push(piece, ended=index == len(pieces) - 1) for index, piece in enumerate(pieces)]
    assert reader.name == "g-2"
    assert "".join(found) == '{"a": "}", "b": [1, 2]}'


def test_a_call_that_was_cut_short() -> None:
    reader = CallReader(TWO)
    assert reader.push('{"name": "f", "arguments": {"a": 1') == '{"a": '
    assert reader.push(", ", ended=True) == "1, "
    unnamed = CallReader(TWO)
    assert unnamed.push('{"na', ended=True) == ""
    assert unnamed.name == ""


def test_one_function_has_no_wrapping() -> None:
    reader = CallReader(TWO[:1])
    assert (reader.name, reader.push('{"a": 1}', ended=True)) == ("f", '{"a": 1}')
