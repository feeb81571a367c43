"""Finds text and calls in a reply, as it comes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paceline.server.tools import ToolUse


@dataclass(frozen=True, slots=True)
class CallPiece:
    """What a push adds to call ``index``. ``name``: given with its first piece, else ``None``."""

    index: int
    name: str | None
    arguments: str


@dataclass(frozen=True, slots=True)
class Found:
    """``text``: what a push adds to the text in front of the calls."""

    text: str = ""
    calls: tuple[CallPiece, ...] = ()


class CallReader:
    """Follows one reply, which keeps to the grammar of ``use``, so that all between arguments is known.

    White space between text and a call belongs to neither: templates put their own there.
    """

    def __init__(self, use: ToolUse) -> None:
        form = use.form
        self._trigger = form.trigger
        self._is_behind_text = form.is_behind_text
        self._head = re.compile(re.escape(form.head) + "([A-Za-z0-9_-]+)" + re.escape(form.middle))
        self._has_begun = use.is_forced
        self._is_text = False
        self._held = ""
        self._arguments: _Object | None = None
        self.num_calls = 0

    @property
    def has_called(self) -> bool:
        """Whether the reply so far ends with a whole call."""
        return self.num_calls > 0 and self._arguments is None

    def push(self, text: str) -> Found:
        """Take what comes next; return what is certain by now."""
        self._held += text
        shown = "" if self._has_begun else self._take_text()
        pieces: list[CallPiece] = []
        while self._has_begun and self._held:
            name = None
            if self._arguments is None:
                found = self._head.search(self._held)
                if found is None:
                    break
                name, self._held = found[1], self._held[found.end() :]
                self._arguments = _Object()
                self.num_calls += 1
            pieces.append(CallPiece(self.num_calls - 1, name, self._take_arguments()))
        return Found(shown, tuple(pieces))

    def end(self) -> str:
        """Return the text that was held back, when nothing more comes."""
        text, self._held = self._held, ""
        return "" if self._has_begun else text

    def _take_text(self) -> str:
        held, trigger = self._held, self._trigger
        if self._is_text:
            self._held = ""
            return held
        place = held.find(trigger) if self._is_behind_text else (0 if held.startswith(trigger) else -1)
        if place >= 0:
            self._has_begun = True
            self._held = held[place + len(trigger) :]
            return held[:place].rstrip()
        if not self._is_behind_text:
            self._is_text = not trigger.startswith(held)
            return self._take_text() if self._is_text else ""
        begun = next(size for size in range(len(trigger) - 1, -1, -1) if held.endswith(trigger[:size]))
        shown = held[: len(held) - begun].rstrip()
        self._held = held[len(shown) :]
        return shown

    def _take_arguments(self) -> str:
        assert self._arguments is not None
        size = self._arguments.take(self._held)
        taken, self._held = self._held[:size], self._held[size:]
        if self._arguments.has_ended:
            self._arguments = None
        return taken


class _Object:
    """Finds the end of a JSON object."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._is_escaped = False
        self.has_ended = False

    def take(self, text: str) -> int:
        """Return how many characters of ``text`` belong to the object."""
        for place, letter in enumerate(text):
            if self._is_escaped:
                self._is_escaped = False
            elif self._in_string:
                self._is_escaped = letter == "\\"
                self._in_string = letter != '"'
            elif letter == '"':
                self._in_string = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self.has_ended = True
                    return place + 1
        return len(text)
