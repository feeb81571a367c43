"""Server-sent events as bytes. ASCII, so that no character can be cut in two on the way."""

from __future__ import annotations

import json
from typing import Any

DONE = b"data: [DONE]\n\n"


def frame(data: dict[str, Any]) -> bytes:
    """Return one event."""
    return b"data: " + as_json(data).encode("ascii") + b"\n\n"


def as_json(data: dict[str, Any]) -> str:
    """Return ``data`` as it goes over the wire."""
    return json.dumps(data, separators=(",", ":"))
