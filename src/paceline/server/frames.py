"""Server-sent events as bytes. ASCII, so that no character can be cut in two on the way."""

from __future__ import annotations

import json
from json.encoder import encode_basestring_ascii
from typing import Any

DONE = b"data: [DONE]\n\n"
PLACE = "\x00text\x00"
"""Stands where a chunk's text will be."""


def frame(data: dict[str, Any]) -> bytes:
    """Return one event."""
    return b"data: " + as_json(data).encode("ascii") + b"\n\n"


def as_json(data: dict[str, Any]) -> str:
    """Return ``data`` as it goes over the wire."""
    return json.dumps(data, separators=(",", ":"))


def around_place(data: dict[str, Any]) -> tuple[str, str]:
    """Return the JSON of ``data`` before and behind the text :data:`PLACE` in it."""
    before, _, behind = as_json(data).partition(encode_basestring_ascii(PLACE))
    return before, behind


def filled(before: str, text: str, behind: str) -> bytes:
    """Return the event whose JSON is ``before``, the string ``text`` and ``behind``."""
    return b"data: " + (before + encode_basestring_ascii(text) + behind).encode("ascii") + b"\n\n"
