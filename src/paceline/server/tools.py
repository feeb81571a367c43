"""Functions that a reply may call: how the served model writes a call, what it is told of the functions, and
the grammar that keeps its calls in form.

A model whose chat template shows functions and asks for calls in a form known here is served in its own form.
Every other model is told of them in plain words, in front of the conversation (:data:`GENERIC`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from paceline.server.errors import bad_request
from paceline.server.schema import CallMade, ChatRequest, Message, NamedTool, Sampling, Tool

if TYPE_CHECKING:
    from paceline.models.chat_template import ChatTemplate


@dataclass(frozen=True, slots=True)
class CallForm:
    """A call is ``trigger`` ``head`` NAME ``middle`` ARGUMENTS ``tail``; arguments are a JSON object.

    ``trigger``: what only a call begins with. ``separator``: between calls; ``None``: a reply has one.
    ``is_behind_text``: text may come first; otherwise a reply is either. ``is_native``: the template shows
    functions and calls by itself.
    """

    name: str
    trigger: str
    head: str
    middle: str
    tail: str
    separator: str | None
    is_behind_text: bool
    is_native: bool = True

    def write(self, name: str, arguments: str) -> str:
        """Return a call. ``arguments``: JSON."""
        return f"{self.trigger}{self.head}{name}{self.middle}{arguments}{self.tail}"


HERMES = CallForm(
    "hermes", "<tool_call>", '\n{"name": "', '", "arguments": ', "}\n</tool_call>", "\n", is_behind_text=True
)
"""Of Hermes, Qwen 2.5 and Qwen 3."""
GENERIC = replace(HERMES, name="generic", is_native=False)
LLAMA3 = CallForm("llama3", '{"name": "', "", '", "parameters": ', "}", None, is_behind_text=False)
"""Of Llama 3.1 and later: the whole reply is one call, or text."""

_HERMES_ASKS = re.compile(r'<tool_call>(\n|\\n)\{\\?"name\\?": ')
_LLAMA3_ASKS = re.compile(r'\{\\?"name\\?": function name, \\?"parameters\\?": ')
_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""One way to write each value, as in all JSON replies."""

_TOLD = """You can call functions. These are there, one to a line:
{functions}

To call one, write its name and its arguments as JSON between tags:
{call}
Call a function only where it helps; otherwise answer in plain words. You are then told what it gave, between
<tool_response> and </tool_response>."""


def call_form(template: ChatTemplate | None) -> CallForm:
    """Return how a model with this template writes calls."""
    if template is not None and "tools" in template.variables:
        if _HERMES_ASKS.search(template.source):
            return HERMES
        if _LLAMA3_ASKS.search(template.source):
            return LLAMA3
    return GENERIC


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What one chat may call. ``shown``: functions the model is told of; ``callable``: those it may call.

    ``is_forced``: the reply is a call; otherwise text, a call, or both. ``is_parallel``: several calls.
    """

    form: CallForm
    shown: tuple[Tool, ...]
    callable: tuple[Tool, ...] = ()
    is_forced: bool = False
    is_parallel: bool = False

    def grammar(self, body: Mapping[str, Any] | None) -> str:
        """Return what replies follow, in the notation that ``llguidance`` made of Lark's.

        ``body``: the schema of a reply that calls nothing; ``None``: any text. Raises ``ApiError``.
        """
        form = self.form
        trigger = re.escape(form.trigger)
        named = [f"call_{index}" for index in range(len(self.callable))]
        lines = [
            f"calls: {json.dumps(form.head)} call {json.dumps(form.tail)} more"
            if form.head
            else f"calls: call {json.dumps(form.tail)} more",
            f"call: {' | '.join(named)}",
            *(f"{rule}: {self._call(index)}" for index, rule in enumerate(named)),
        ]
        if self.is_parallel and form.separator is not None:
            lines.append(f"more: ({json.dumps(form.separator + form.trigger)} calls)?")
        else:
            lines.append('more: ""')
        if self.is_forced:
            return "\n".join([f"start: {json.dumps(form.trigger)} calls", *lines])
        if body is not None:
            return "\n".join(
                [f"start: body | {json.dumps(form.trigger)} calls", f"body: %json {_schema(body)}", *lines]
            )
        before = "(.|\\n)*" if form.is_behind_text else ""
        lines += [
            f"opened[lazy]: /{before}{trigger}/",
            f"TEXT: /(.|\\n)*/ & ~/{before}{trigger}(.|\\n)*/",
        ]
        return "\n".join(["start: TEXT | opened calls", *lines])

    def _call(self, index: int) -> str:
        tool = self.callable[index]
        return f"{json.dumps(tool.function.name + self.form.middle)} %json {_schema(parameters(tool))}"


def parameters(tool: Tool) -> dict[str, Any]:
    """Return the schema of a function's arguments. Raises ``ApiError`` unless they are an object."""
    given = tool.function.parameters
    if not given:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if given.get("type", "object") != "object":
        raise bad_request(
            f"tools: the parameters of {tool.function.name!r} have the type {given['type']!r:.40}; functions "
            "take an object",
            "tools",
        )
    return {**given, "type": "object"}


def tool_use(request: Sampling, form: CallForm) -> ToolUse | None:
    """Return what a request may call; ``None``: nothing. Raises ``ApiError``."""
    if not isinstance(request, ChatRequest):
        return None
    tools, choice = tuple(request.tools or ()), request.tool_choice
    if not tools:
        if choice not in (None, "none", "auto") or request.parallel_tool_calls is not None:
            name = "parallel_tool_calls" if choice in (None, "none", "auto") else "tool_choice"
            raise bad_request(f"{name} does nothing without tools: leave it out", name)
        return None
    names = [tool.function.name for tool in tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise bad_request(f"tools names {twice!r} twice: a call could mean either", "tools")
    if choice == "none":
        return None
    wanted = request.parallel_tool_calls
    # A model that calls in a form it was not trained on seldom ends: it repeats its call.
    is_parallel = (form.is_native if wanted is None else wanted) and form.separator is not None
    if not isinstance(choice, NamedTool):
        return ToolUse(form, tools, tools, choice == "required", is_parallel)
    named = tuple(tool for tool in tools if tool.function.name == choice.function.name)
    if not named:
        raise bad_request(
            f"tool_choice names {choice.function.name!r:.70}, which is not in tools", "tool_choice"
        )
    return ToolUse(form, tools, named, is_forced=True, is_parallel=False)


# ---- what the model is told ----


def native_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return messages as templates that know calls take them: arguments are objects, not text."""
    result = []
    for message in messages:
        plain = message.model_dump(exclude_none=True)
        for call in plain.get("tool_calls", ()):
            call["function"]["arguments"] = _arguments(call["function"]["arguments"])
        result.append(plain)
    return result


def generic_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return messages as templates that know no calls take them: calls and what they gave become text."""
    result: list[dict[str, Any]] = []
    was_tool = False
    for message in messages:
        is_tool = message.role == "tool"
        if is_tool:
            text = f"<tool_response>\n{message.text}\n</tool_response>"
            if was_tool:
                result[-1]["content"] += f"\n{text}"
            else:
                result.append({"role": "user", "content": text})
        elif message.tool_calls:
            calls = [_written(call) for call in message.tool_calls]
            texts = [message.text, *calls] if message.text else calls
            result.append({"role": message.role, "content": "\n".join(texts)})
        else:
            result.append(message.model_dump(exclude_none=True))
        was_tool = is_tool
    return result


def tell(messages: Sequence[dict[str, Any]], tools: Sequence[Tool], role: str) -> list[dict[str, Any]]:
    """Return generic messages with the functions told of in the first one of ``role``: system or user."""
    functions = "\n".join(json.dumps(described(tool), ensure_ascii=False) for tool in tools)
    told = _TOLD.format(functions=functions, call=GENERIC.write("NAME", '{"ARGUMENT": VALUE}'))
    if role == "system":
        first = messages[0]
        if first["role"] not in ("system", "developer"):
            return [{"role": "system", "content": told}, *messages]
        return [{**first, "content": f"{_text(first)}\n\n{told}"}, *messages[1:]]
    place = next((index for index, message in enumerate(messages) if message["role"] == "user"), None)
    if place is None:
        return [{"role": "user", "content": told}, *messages]
    first = {**messages[place], "content": f"{told}\n\n{_text(messages[place])}"}
    return [*messages[:place], first, *messages[place + 1 :]]


def described(tool: Tool) -> dict[str, Any]:
    """Return a function's description, as templates take it."""
    return tool.model_dump(exclude_none=True)


def _written(call: CallMade) -> str:
    arguments = json.dumps(_arguments(call.function.arguments), ensure_ascii=False)
    return GENERIC.write(call.function.name, arguments)


def _arguments(text: str) -> dict[str, Any]:
    """Return the arguments of an earlier call. Raises ``ApiError`` unless they are a JSON object."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise bad_request(f"messages: the arguments {text!r:.60} of a call are no JSON object", "messages")
    return found


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content", "")
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def _schema(schema: Mapping[str, Any]) -> str:
    return json.dumps({**schema, "x-guidance": _LAYOUT})
