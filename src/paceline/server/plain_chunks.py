"""Chunks that differ in nothing but their text and the usage so far, without making the rest anew each time.

They are made for each piece of each stream, on cores that the forward wants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any

from paceline.server.frames import as_json
from paceline.server.job import Part
from paceline.server.replies import usage

PLACE = "\x00text\x00"
"""Stands where a chunk's text will be."""


class PlainChunks:
    """The chunks of one stream. ``runs_usage``: each ends with the usage so far."""

    def __init__(self, parts: Sequence[Part], num_completions: int, runs_usage: bool) -> None:
        self._parts, self._num_completions, self._runs_usage = parts, num_completions, runs_usage
        self._around: dict[int, tuple[str, str]] = {}

    def chunk(self, part: Part, text: str, whole: Callable[[], dict[str, Any]]) -> bytes:
        """Return the event with ``text``. ``whole``: the chunk with :data:`PLACE` as text, asked for once."""
        found = self._around.get(part.index)
        if found is None:
            found = self._around[part.index] = self._split(whole())
        before, behind = found
        end = self._usage() if self._runs_usage else ""
        return f"{before}{encode_basestring_ascii(text)}{behind}{end}\n\n".encode("ascii")

    def _split(self, data: dict[str, Any]) -> tuple[str, str]:
        if self._runs_usage:
            data.pop("usage")
        before, _, behind = as_json(data).partition(encode_basestring_ascii(PLACE))
        return "data: " + before, behind[:-1] + ',"usage":' if self._runs_usage else behind

    def _usage(self) -> str:
        """Return the usage so far, and the end of the chunk."""
        if len(self._parts) > 1:
            return as_json(usage(self._parts, self._num_completions)) + "}"
        prompt, output = len(self._parts[0].prompt), self._parts[0].num_tokens
        counts = f'"prompt_tokens":{prompt},"completion_tokens":{output},"total_tokens":{prompt + output}'
        return f"{{{counts}}}}}"
