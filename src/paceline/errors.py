"""Typed errors. Each message names the field, the value and the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PacelineError(Exception):
    """Base of every error a user can cause."""


class ConfigError(PacelineError, ValueError):
    """A parameter is unknown, out of range or contradicts another one."""


class ModelFileError(PacelineError, ValueError):
    """A model file is truncated, corrupt, hostile or of an unsupported kind."""


class ModelNotFoundError(PacelineError, FileNotFoundError):
    """A model name or path leads nowhere."""


class DownloadError(PacelineError, OSError):
    """Fetching a model failed; nothing half-written was left behind."""


class VocabularyMismatchError(PacelineError, ValueError):
    """Draft model and target do not share one vocabulary."""


class PromptError(PacelineError, ValueError):
    """A prompt is empty, too long for the context, or holds ids outside the vocabulary."""


class CacheFullError(PacelineError, RuntimeError):
    """The KV cache has no free block left for a request that must run."""


class QueueFullError(PacelineError, RuntimeError):
    """As many requests wait as may. ``retry_after``: seconds after which another try is worth it."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LogitsError(PacelineError, ValueError):
    """No token can be chosen: the logits hold NaN or infinity, or every token is masked."""


class GrammarError(PacelineError, ValueError):
    """A reply cannot follow its grammar any further: it became too complex, or no token is legal."""


class EndpointError(PacelineError, OSError):
    """A server cannot be reached, refuses, or answers in another form than OpenAI's."""


class DrafterError(PacelineError, RuntimeError):
    """A drafter cannot be built for this target."""


def nearest_name(unknown: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the closest of ``known``, or an empty string."""
    match = difflib.get_close_matches(unknown, list(known), n=1, cutoff=0.5)
    return f" (did you mean {match[0]!r}?)" if match else ""
