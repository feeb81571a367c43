"""The server's log: one JSON object per line, or plain lines. Prompts and replies stay out of it."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

LOGGER = "paceline"
FORMATS = ("json", "text")
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}

access = logging.getLogger("paceline.server.access")


class JsonFormatter(logging.Formatter):
    """``time`` (UTC), ``level``, ``logger``, ``message``, whatever was given as ``extra``, and ``error``."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= _extras(record)
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=True, default=str)


class TextFormatter(logging.Formatter):
    """The same on one readable line; an error's traceback follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the base class's name)
        extras = " ".join(
            f"{name}={json.dumps(value, default=str)}" for name, value in _extras(record).items()
        )
        return f"{super().formatMessage(record)} {extras}".rstrip()


def set_up(form: str, level: str) -> None:
    """Send Paceline's and uvicorn's messages to stderr in ``form`` (``json``, ``text``)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    for name in (LOGGER, "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
    logging.getLogger("uvicorn.access").disabled = True  # ours says more, and says it in JSON


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _OWN}
