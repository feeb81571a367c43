"""How a request is served beside others. Nothing here changes a token of its reply."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from paceline.config import Settings, check_float, check_int
from paceline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class QueueTerms(Settings):
    """``priority``: lower numbers are served first, and the cache is taken from higher ones first.
    ``client``: whom the request counts for when clients take turns. ``max_queue_time``: seconds after which a
    request that has not begun ends without a reply. ``deadline``: seconds after its arrival at which it ends
    with what it has. Both end with finish reason ``timeout`` and their own name as stop reason.

    Raises ``ConfigError`` for values out of range.
    """

    priority: int = 0
    client: str = ""
    max_queue_time: float | None = None
    deadline: float | None = None

    MAX_PRIORITY: ClassVar[int] = 1000

    def __post_init__(self) -> None:
        check_int("priority", self.priority, -self.MAX_PRIORITY, self.MAX_PRIORITY)
        if not isinstance(self.client, str):
            raise ConfigError(f"client={self.client!r:.60}: give a string")
        for name in ("max_queue_time", "deadline"):
            if getattr(self, name) is not None:
                check_float(name, getattr(self, name), 0.0, math.inf)

    @property
    def is_timed(self) -> bool:
        return self.max_queue_time is not None or self.deadline is not None

    def broken(self, waited: float, has_begun: bool) -> str | None:
        """Return which limit a request of this age has passed, if any."""
        if self.deadline is not None and waited >= self.deadline:
            return "deadline"
        if self.max_queue_time is not None and not has_begun and waited >= self.max_queue_time:
            return "max_queue_time"
        return None
