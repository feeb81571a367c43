"""Render chat messages with a model's own template, and keep their text from becoming control tokens.

A template is a Jinja program from a model file, so it runs in a sandbox. It mixes its own marks
(``<|im_start|>``) with the text of messages, and the result is parsed for control tokens; a message that
spells ``<|im_end|>`` must not end its own turn. Before rendering, each text gets a *guard* wherever a control
token could begin: one character that occurs nowhere in the input. It splits ``<|im_end|>`` into
``<GUARD|im_end|>``, which no longer matches, and it is taken out of the pieces of text afterwards. What the
template itself searches for (``</think>``) stays whole, and so does all text without control-like parts:
templates that trim, split or search work as elsewhere, and harmless chats get the ids transformers gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from paceline.errors import ModelFileError, PromptError, nearest_name
from paceline.models.tokenizer import Tokenizer

ROLES = ("system", "user", "assistant", "tool", "developer", "function", "ipython", "model")
"""Roles a message may have. A fixed list, because templates build control tokens out of roles."""

# Noncharacters first (never assigned, never exchanged), then the two private planes.
_GUARDS = (range(0xFDD0, 0xFDF0), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))

_TEMPLATE_FAULTS = (
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
    MemoryError,
)
_MOST_REPEATED = 1 << 20
"""Longest text or list, and most bits of a number, that a template may make with one ``*`` or ``**``."""

Message = Mapping[str, Any]


class ChatTemplate:
    """One template together with the tokenizer it writes for. ``variables``: names that ``source`` reads."""

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        """Raises ``ModelFileError`` when ``source`` is no valid template."""
        self.source = source
        self._tokenizer = tokenizer
        environment = _environment()
        try:
            self._template = environment.from_string(source)
            parsed = environment.parse(source)
        except TemplateSyntaxError as error:
            raise ModelFileError(f"the chat template is broken at line {error.lineno}: {error}") from error
        except RecursionError as error:
            raise ModelFileError("the chat template is nested too deeply to be read") from error
        self.variables = frozenset(meta.find_undeclared_variables(parsed))
        self._controls = tuple(tokenizer.control_tokens)
        self._first_letters = frozenset(text[0] for text in self._controls)
        literals = {node.value for node in parsed.find_all(nodes.Const) if isinstance(node.value, str)}
        self._searched = tuple(text for text in literals if len(text) > 1 and self._is_harmless(text))

    def render(self, messages: Sequence[Message], **variables: Any) -> str:
        """Return the prompt as text. Not to be parsed for control tokens: use ``encode`` for that."""
        guard = self._choose_guard((messages, variables))
        return self._render(messages, variables, guard).replace(guard, "")

    def encode(self, messages: Sequence[Message], **variables: Any) -> list[int]:
        """Return the prompt's ids: the template's marks are control tokens, the messages are only text.

        ``variables`` reach the template (``add_generation_prompt``, true unless given, ``tools``,
        ``enable_thinking`` …). Raises ``PromptError`` when the messages are not what the template takes.
        """
        guard = self._choose_guard((messages, variables))
        rendered = self._render(messages, variables, guard)
        pieces: list[str | int] = []
        for piece in self._tokenizer.split(rendered, parse_special=True):
            if isinstance(piece, int):
                pieces.append(piece)
            else:
                pieces += self._tokenizer.split(piece.replace(guard, ""), parse_special=False)
        ids = self._tokenizer.encode_pieces(pieces)
        bos = self._tokenizer.bos_token_id
        if self._tokenizer.adds_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        return ids

    def _render(self, messages: Sequence[Message], variables: Mapping[str, Any], guard: str) -> str:
        if not messages:
            raise PromptError("a chat needs at least one message, e.g. {'role': 'user', 'content': 'Hello'}")
        checked = [_checked_message(index, message) for index, message in enumerate(messages)]
        values = {"add_generation_prompt": True, "tools": None, **variables}
        guarded = {"messages": [self._guarded_message(message, guard) for message in checked]}
        guarded |= {name: self._guarded(value, guard) for name, value in values.items()}
        try:
            return self._template.render(**self._special_texts(), **guarded)
        except TemplateError as error:
            raise PromptError(f"the model's chat template refuses these messages: {error}") from error
        except _TEMPLATE_FAULTS as error:
            raise PromptError(
                f"the model's chat template fails on these messages ({error}); check their fields"
            ) from error

    def _special_texts(self) -> dict[str, str]:
        tokenizer = self._tokenizer
        ids = {"bos_token": tokenizer.bos_token_id, "eos_token": tokenizer.eos_token_id}
        return {name: "" if index is None else tokenizer.tokens[index] for name, index in ids.items()}

    # ---- guarding ----

    def _choose_guard(self, values: object) -> str:
        used = set(self.source).union(*map(set, _strings(values)))
        for code in chain.from_iterable(_GUARDS):
            if chr(code) not in used:
                return chr(code)
        raise PromptError("the messages use every private character of Unicode: remove some")

    def _guarded_message(self, message: dict[str, Any], guard: str) -> dict[str, Any]:
        """Return a message with its texts guarded. The role is from a fixed list and stays as it is."""
        guarded = {key: self._guarded(value, guard) for key, value in message.items()}
        for key, value in guarded.items():
            if isinstance(value, str):
                start = len(value) - len(value.lstrip())
                if self._completes_control(value[start:]):
                    guarded[key] = f"{value[:start]}{guard}{value[start:]}"
        return {**guarded, "role": message["role"]}

    def _guarded(self, value: Any, guard: str) -> Any:
        """Return ``value`` with every text inside guarded against beginning a control token."""
        if isinstance(value, str):
            return self._guard_text(value, guard)
        if isinstance(value, Mapping):
            return {self._guarded(key, guard): self._guarded(item, guard) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._guarded(item, guard) for item in value]
        return value

    def _guard_text(self, text: str, guard: str) -> str:
        if self._first_letters.isdisjoint(text):
            return text
        return "".join(
            letter + guard if letter in self._first_letters and not self._is_exempt(text, i) else letter
            for i, letter in enumerate(text)
        )

    def _is_exempt(self, text: str, position: int) -> bool:
        """Return whether what stands here is known and harmless: left whole, so that templates find it."""
        return self._tokenizer.starts_user_defined(text, position) or any(
            text.startswith(literal, position) for literal in self._searched
        )

    def _is_harmless(self, literal: str) -> bool:
        """Return whether a template's literal neither holds nor begins a control token."""
        return not any(text in literal or text.startswith(literal) for text in self._controls)

    def _completes_control(self, text: str) -> bool:
        """Return whether ``text``, behind a template's own letters, could complete a control token."""
        return any(text[:length] in self._endings for length in range(1, self._longest + 1)) or (
            0 < len(text.rstrip()) < self._longest and any(text.rstrip() in token for token in self._controls)
        )

    @cached_property
    def _endings(self) -> frozenset[str]:
        return frozenset(text[cut:] for text in self._controls for cut in range(1, len(text)))

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._controls), default=0)


def _checked_message(index: int, message: Message) -> dict[str, Any]:
    """Return a message with a known role and its content as one text."""
    if not isinstance(message, Mapping) or "role" not in message:
        raise PromptError(f"message {index} is {message!r:.80}; it needs 'role' and 'content'")
    role = message["role"]
    if role not in ROLES:
        raise PromptError(
            f"message {index} has the role {role!r:.40}{nearest_name(str(role), ROLES)}; "
            f"known are {', '.join(ROLES)}"
        )
    content = message.get("content")
    if isinstance(content, list | tuple):
        content = "\n".join(_part_text(index, part) for part in content)
    if content is not None and not isinstance(content, str):
        raise PromptError(f"message {index} has content of type {type(content).__name__}; it must be text")
    return {**message, "content": content}


def _part_text(index: int, part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise PromptError(f"message {index} holds the part {part!r:.60}; only text parts are supported")


def _strings(value: object) -> Iterator[str]:
    """Yield every string inside nested lists and mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from chain.from_iterable(map(_strings, chain(value.keys(), value.values())))
    elif isinstance(value, Iterable):
        yield from chain.from_iterable(map(_strings, value))


class _GenerationTag(Extension):
    """``{% generation %}…{% endgeneration %}`` marks training targets; rendering passes its body through."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's interface)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox bounds ranges but lets ``'a' * 10**10`` take the machine's memory."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Refuse a product or power of an absurd size."""
        if operator == "*":
            size = _repeats(left, right)
        else:
            size = abs(right) * left.bit_length() if isinstance(left, int) and isinstance(right, int) else 0
        if size > _MOST_REPEATED:
            raise TemplateError(f"{operator} would make something of size {size:.3g}")
        return super().call_binop(context, operator, left, right)


def _repeats(left: Any, right: Any) -> int:
    """Return the length of a repeated sequence, the bits of a product of integers, 0 for anything else."""
    if isinstance(left, int) and isinstance(right, int):
        return left.bit_length() + right.bit_length()
    if isinstance(right, int) and isinstance(left, Sequence):
        return len(left) * right
    return len(right) * left if isinstance(left, int) and isinstance(right, Sequence) else 0


def _environment() -> ImmutableSandboxedEnvironment:
    """Return a sandbox with the names that published templates use."""
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON; Jinja's own filter would escape ``<`` for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
