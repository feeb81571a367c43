"""What a reply must follow: grammars from response formats, structured outputs and tools."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

import numpy as np

from paceline.errors import ConfigError, GrammarError
from paceline.models.tokenizer import Tokenizer
from paceline.sampling.grammar import Grammar, GrammarCompiler
from paceline.server.errors import ApiError, bad_request
from paceline.server.schema import ChatRequest, ResponseFormat, Sampling, StructuredOutputs
from paceline.server.tools import ToolUse, parameters

KEPT = 16
"""Compiled grammars that are kept: the same few come with every request. One takes up to 30 MB: replies that
follow it add states to its lexer; those are bounded.
"""


class Constraints:
    """Compiles grammars, once each. Compiling is slow: not for the event loop.

    What all grammars of a vocabulary share (a quarter of a second and 15 MB for 49,152 tokens) is made at
    once: later it would hold up everyone, because it does not let go of the interpreter.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._compiler = GrammarCompiler(tokenizer)
        self._kept: OrderedDict[str, Grammar] = OrderedDict()
        self._lock = Lock()
        self._row = np.zeros(tokenizer.vocab_size, np.float32)

    def of(self, request: Sampling, use: ToolUse | None = None) -> Grammar | None:
        """Return the grammar of a request that may call functions as ``use`` says, ``None`` without one.
        Raises ``ApiError``.
        """
        found = _sources(request)
        with self._lock:
            if use is None:
                return self._named(found[0]) if found else None
            if found and (use.is_forced or found[0].param != "response_format"):
                raise _contradict("tools", found[0].param)
            body = found[0].source if found else None
            try:
                source = Source("tools", "lark", use.grammar(body))
            except RecursionError as error:
                raise bad_request("tools is nested too deeply", "tools") from error
            if source.key not in self._kept:  # what is wrong with its parts is told by their names
                for part in [*found, *_arguments(use)]:
                    self._named(part, keep=False)
            return self._named(source)

    def _named(self, source: Source, keep: bool = True) -> Grammar:
        """Return the grammar of ``source``. Raises ``ApiError`` that names it."""
        try:
            return self._compiled(source) if keep else self._compile(source.kind, source.source)
        except ConfigError as error:
            raise bad_request(f"{source.label or source.param}: {error}", source.param) from error
        except RecursionError as error:
            raise bad_request(f"{source.label or source.param} is nested too deeply", source.param) from error

    def _compiled(self, source: Source) -> Grammar:
        key = source.key
        if key not in self._kept or self._is_spent(self._kept[key]):
            self._kept[key] = self._compile(source.kind, source.source)
        self._kept.move_to_end(key)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]

    def _is_spent(self, grammar: Grammar) -> bool:
        """Return whether ``grammar`` can be followed no more.

        All requests that follow it share the states of its lexer. The one that reaches their bound fails, and
        so would every later one.
        """
        try:
            grammar.start().mask(self._row, ())
        except GrammarError:
            return True
        return False

    def _compile(self, kind: str, source: Any) -> Grammar:
        compiler = self._compiler
        if kind == "regex":
            return compiler.regex(source)
        return compiler.lark(source) if kind == "lark" else compiler.json_schema(source)


@dataclass(frozen=True, slots=True)
class Source:
    """``param``: the parameter at fault if it goes wrong, with more about where in ``label``."""

    param: str
    kind: Literal["json", "regex", "lark"]
    source: Any
    label: str = ""

    @property
    def key(self) -> str:
        return self.kind + json.dumps(self.source, sort_keys=True)


def _arguments(use: ToolUse) -> list[Source]:
    return [
        Source("tools", "json", parameters(tool), f"tools: the parameters of {tool.function.name!r}")
        for tool in use.callable
    ]


def _sources(request: Sampling) -> list[Source]:
    """Return what a request's text must follow: one thing at most."""
    found: list[Source] = []
    if isinstance(request, ChatRequest) and request.response_format is not None:
        found += _response_format(request.response_format)
    if request.structured_outputs is not None:
        found.append(_structured(request.structured_outputs))
    if len(found) > 1:
        raise _contradict(found[0].param, found[1].param)
    return found


def _contradict(one: str, other: str) -> ApiError:
    return bad_request(f"{one} and {other} contradict each other: give one", other)


def _response_format(form: ResponseFormat) -> list[Source]:
    if (form.type == "json_schema") != (form.json_schema is not None):
        raise bad_request(
            "response_format.json_schema goes with the type json_schema, and only with it", "response_format"
        )
    if form.json_schema is not None:
        return [Source("response_format", "json", form.json_schema.schema_)]
    return [Source("response_format", "json", {"type": "object"})] if form.type == "json_object" else []


def _structured(given: StructuredOutputs) -> Source:
    sources: list[Source] = []
    if given.json_ is not None:
        sources.append(Source("structured_outputs.json", "json", given.json_))
    if given.regex is not None:
        sources.append(Source("structured_outputs.regex", "regex", given.regex))
    if given.choice is not None:
        words = "start: " + " | ".join(map(json.dumps, given.choice))
        sources.append(Source("structured_outputs.choice", "lark", words))
    if given.grammar is not None:
        sources.append(Source("structured_outputs.grammar", "lark", given.grammar))
    if len(sources) != 1:
        raise bad_request(
            "structured_outputs takes exactly one of json, regex, choice and grammar", "structured_outputs"
        )
    return sources[0]
