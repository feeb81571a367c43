"""What a peer engine must be able to do to be measured, and the records it answers with.

Every method times itself around the engine's own call, so neither the pipe to the parent nor building the
inputs is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class PeerUnavailableError(RuntimeError):
    """The engine is not installed here, or cannot read this model; the message says which."""


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """How every engine is set up. ``model``: path of a model file or folder; ``context``: tokens."""

    model: str
    threads: int = 2
    context: int = 2048


@dataclass(frozen=True, slots=True)
class Generation:
    """One greedy reply: its token ids (end token left out) and wall seconds, prompt included."""

    token_ids: tuple[int, ...]
    seconds: float


class Peer(Protocol):
    """One engine with one model loaded. ``num_rows`` and ``depth`` are in tokens, results in seconds."""

    def describe(self) -> dict[str, str]:
        """Return the engine's version and what it says about its instruction set."""
        ...

    def forward(self, num_rows: int, depth: int, repeats: int) -> list[float]:
        """Return the seconds of ``repeats`` forwards of ``num_rows`` tokens in a row behind ``depth`` others.

        Logits of every row are computed and reachable from Python. Raises ``PeerUnavailableError`` when the
        engine has no such entry point.
        """
        ...

    def prompt(self, num_tokens: int, repeats: int) -> list[float]:
        """Return the seconds of ``num_tokens`` of prompt from an empty cache, logits of the last."""
        ...

    def generate(
        self, prompt: Sequence[int], max_tokens: int, eos: Sequence[int], speculate: bool = False
    ) -> Generation:
        """Continue ``prompt`` greedily until a token of ``eos`` or ``max_tokens``.

        ``speculate`` turns on the engine's own speculation that needs no second model (prompt lookup; in
        Paceline the drafter ``auto``).
        """
        ...


def spread_tokens(count: int, vocab_size: int) -> list[int]:
    """Return ``count`` ids spread over the vocabulary, the same for every engine.

    A fixed multiplicative walk: no id twice in a row and no cache-friendly run in the embedding.
    """
    low = min(300, vocab_size // 2)
    return [low + (7919 * (i + 1)) % (vocab_size - low) for i in range(count)]
