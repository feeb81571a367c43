"""What a reply must follow: grammars from response formats, structured outputs and forced tools."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any

from paceline.errors import ConfigError
from paceline.models.tokenizer import Tokenizer
from paceline.sampling.grammar import Grammar, GrammarCompiler
from paceline.server.errors import bad_request
from paceline.server.schema import ChatRequest, NamedTool, Sampling, StructuredOutputs, Tool

KEPT = 64
"""Compiled grammars that are kept: the same few come with every request."""


class Constraints:
    """Compiles grammars, once each. Compiling is slow: not for the event loop.

    What all grammars of a vocabulary share (a quarter of a second and 15 MB for 49,152 tokens) is made at
    once: later it would hold up everyone, because it does not let go of the interpreter.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._compiler = GrammarCompiler(tokenizer)
        self._kept: OrderedDict[str, Grammar] = OrderedDict()
        self._lock = Lock()

    def of(self, request: Sampling) -> Grammar | None:
        """Return the grammar of a request, ``None`` without one. Raises ``ApiError``."""
        found = _source(request)
        if found is None:
            return None
        param, kind, source = found
        try:
            with self._lock:
                return self._compiled(kind, source)
        except ConfigError as error:
            raise bad_request(f"{param}: {error}", param) from error
        except RecursionError as error:
            raise bad_request(f"{param} is nested too deeply", param) from error

    def _compiled(self, kind: str, source: Any) -> Grammar:
        key = kind + json.dumps(source, sort_keys=True)
        if key not in self._kept:
            self._kept[key] = self._compile(kind, source)
        self._kept.move_to_end(key)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]

    def _compile(self, kind: str, source: Any) -> Grammar:
        compiler = self._compiler
        if kind == "regex":
            return compiler.regex(source)
        return compiler.lark(source) if kind == "lark" else compiler.json_schema(source)


def forced_tools(request: Sampling) -> list[Tool]:
    """Return the tools of which one must be called; empty when the reply is text. Raises ``ApiError``."""
    if not isinstance(request, ChatRequest):
        return []
    tools, choice = request.tools or [], request.tool_choice
    if not tools:
        if choice not in (None, "none", "auto") or request.parallel_tool_calls is not None:
            name = "parallel_tool_calls" if choice in (None, "none", "auto") else "tool_choice"
            raise bad_request(f"{name} does nothing without tools: leave it out", name)
        return []
    if request.parallel_tool_calls:
        raise bad_request(
            "parallel_tool_calls=true is not supported: a reply has one call", "parallel_tool_calls"
        )
    if choice == "none":
        return []
    if choice in (None, "auto"):
        raise bad_request(
            "tools are supported with a forced call: set tool_choice to 'required' or to one function",
            "tool_choice",
        )
    if choice == "required":
        return tools
    assert isinstance(choice, NamedTool)
    named = [tool for tool in tools if tool.function.name == choice.function.name]
    if not named:
        raise bad_request(
            f"tool_choice names {choice.function.name!r:.70}, which is not in tools", "tool_choice"
        )
    return named[:1]


def _source(request: Sampling) -> tuple[str, str, Any] | None:
    """Return the parameter at fault if it goes wrong, the kind of the grammar, and its source."""
    found: list[tuple[str, str, Any]] = []
    tools = forced_tools(request)
    if tools:
        found.append(("tools", "json", _call_schema(tools)))
    if isinstance(request, ChatRequest) and request.response_format is not None:
        found += _response_format(request)
    if request.structured_outputs is not None:
        found.append(_structured(request.structured_outputs))
    if len(found) > 1:
        raise bad_request(f"{found[0][0]} and {found[1][0]} contradict each other: give one", found[1][0])
    return found[0] if found else None


def _response_format(request: ChatRequest) -> list[tuple[str, str, Any]]:
    form = request.response_format
    assert form is not None
    if (form.type == "json_schema") != (form.json_schema is not None):
        raise bad_request(
            "response_format.json_schema goes with the type json_schema, and only with it", "response_format"
        )
    if form.json_schema is not None:
        return [("response_format", "json", form.json_schema.schema_)]
    return [("response_format", "json", {"type": "object"})] if form.type == "json_object" else []


def _structured(given: StructuredOutputs) -> tuple[str, str, Any]:
    sources: dict[str, tuple[str, Any]] = {}
    if given.json_ is not None:
        sources["json"] = ("json", given.json_)
    if given.regex is not None:
        sources["regex"] = ("regex", given.regex)
    if given.choice is not None:
        sources["choice"] = ("lark", "start: " + " | ".join(map(json.dumps, given.choice)))
    if given.grammar is not None:
        sources["grammar"] = ("lark", given.grammar)
    if len(sources) != 1:
        raise bad_request(
            "structured_outputs takes exactly one of json, regex, choice and grammar", "structured_outputs"
        )
    ((name, (kind, source)),) = sources.items()
    return f"structured_outputs.{name}", kind, source


def _call_schema(tools: Sequence[Tool]) -> dict[str, Any]:
    """Return the schema of one function's arguments, or of a call that names one of several functions."""
    if len(tools) == 1:
        return _arguments(tools[0])
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.function.name}, "arguments": _arguments(tool)},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    return {"anyOf": calls}


def _arguments(tool: Tool) -> dict[str, Any]:
    return tool.function.parameters or {"type": "object", "properties": {}, "additionalProperties": False}


class CallReader:
    """Finds the function's name and its arguments in the text of a forced call, as it comes.

    The grammar allows one way to write it, so the text in front of the arguments and behind them is known.
    """

    _HEAD = re.compile(r'\{"name": "([A-Za-z0-9_-]+)", "arguments": ')

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.name = tools[0].function.name if len(tools) == 1 else ""
        self._is_bare = len(tools) == 1
        self._held = ""

    def push(self, text: str, ended: bool = False) -> str:
        """Return what ``text`` adds to the arguments. ``ended``: nothing more comes."""
        if self._is_bare:
            return text
        self._held += text
        if not self.name:
            found = self._HEAD.match(self._held)
            if found is None:
                return ""
            self.name, self._held = found[1], self._held[found.end() :]
        # The last brace closes the call, not its arguments; a reply that was cut short has none.
        keep = 0 if ended and not self._held.endswith("}") else 1
        shown = self._held[: len(self._held) - keep]
        self._held = self._held[len(shown) :]
        return shown
