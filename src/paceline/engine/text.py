"""Tokens to text, one token at a time: UTF-8 across tokens, stop strings across tokens, safe deltas."""

from __future__ import annotations

import codecs
from typing import Protocol


class TokenDecoder(Protocol):
    """What the engine needs of a tokenizer."""

    def token_bytes(self, token_id: int, *, skip_special: bool = True) -> bytes:
        """Return the bytes a token adds to running text; empty for special tokens that are skipped."""
        ...


class TextStream:
    """The text of one reply and how much of it may be shown.

    Bytes that are not valid UTF-8 become U+FFFD, as in other engines.
    """

    __slots__ = (
        "_buffer",
        "_decoder",
        "_include_stop",
        "_shown",
        "_skip_special",
        "_stops",
        "_tokens",
        "text",
    )

    def __init__(
        self, tokens: TokenDecoder, stops: tuple[str, ...], include_stop: bool, skip_special: bool
    ) -> None:
        self._tokens = tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = stops
        self._include_stop = include_stop
        self._skip_special = skip_special
        self._shown = 0
        self.text = ""

    def push(self, token: int) -> str:
        """Append ``token``; return the characters it completed."""
        new = self._decoder.decode(self._tokens.token_bytes(token, skip_special=self._skip_special))
        self.text += new
        return new

    def find_stop(self, new: str) -> str | None:
        """Return the stop string that the last ``new`` characters completed, and cut the text there.

        Of several, the one that starts first; of those, the first in the request's list.
        """
        if not new:
            return None
        best, best_start = None, len(self.text)
        for stop in self._stops:
            start = self.text.find(stop, max(0, len(self.text) - len(new) - len(stop) + 1))
            if 0 <= start < best_start:
                best, best_start = stop, start
        if best is not None:
            self.text = self.text[: best_start + (len(best) if self._include_stop else 0)]
            self._decoder.reset()
        return best

    def finish(self) -> None:
        """End the text: an unfinished character becomes U+FFFD."""
        self.text += self._decoder.decode(b"", final=True)

    def take_delta(self, ended: bool) -> str:
        """Return the text that is new since the last call and safe to show."""
        end = len(self.text)
        if not ended and self._stops and not self._include_stop:
            end -= self._held_back()
        start, self._shown = self._shown, max(self._shown, end)
        return self.text[start : self._shown]

    def _held_back(self) -> int:
        """Return the length of the longest end of the text that some stop string begins with."""
        longest = min(len(self.text), max(len(stop) for stop in self._stops) - 1)
        for length in range(longest, 0, -1):
            tail = self.text[-length:]
            if any(len(stop) > length and stop.startswith(tail) for stop in self._stops):
                return length
        return 0
