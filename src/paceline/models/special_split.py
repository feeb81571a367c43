"""Cut text at tokens that are matched whole: control marks and the pieces a vocabulary defines itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WholeToken:
    """A token matched as one piece of text; it swallows whitespace on the sides where it ``strips``."""

    text: str
    token_id: int
    strips_left: bool = False
    strips_right: bool = False


class SpecialSplitter:
    """Finds whole tokens in text: leftmost first, and the longest of those that start there.

    Gemma has 6,400 of them. A regular expression of alternatives would try each at every ``<``; here the
    first letter is searched for and then one dictionary look-up is made per length that can start with it.
    """

    def __init__(self, tokens: Iterable[WholeToken]) -> None:
        self._tokens: Mapping[str, WholeToken] = {token.text: token for token in tokens if token.text}
        lengths: dict[str, set[int]] = {}
        for text in self._tokens:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(sizes, reverse=True) for first, sizes in lengths.items()}
        letters = "".join(map(re.escape, self._lengths))
        self._starts = re.compile(f"[{letters}]") if letters else None

    def __len__(self) -> int:
        return len(self._tokens)

    def match(self, text: str, position: int) -> WholeToken | None:
        """Return the longest whole token that starts at ``position``."""
        for length in self._lengths.get(text[position], ()):
            token = self._tokens.get(text[position : position + length])
            if token is not None:
                return token
        return None

    def split(self, text: str) -> Iterator[str | int]:
        """Yield pieces of text (never empty) and ids of whole tokens, in order."""
        start = position = 0
        while self._starts is not None and (found := self._starts.search(text, position)):
            position = found.start()
            token = self.match(text, position)
            if token is None:
                position += 1
                continue
            before = text[start:position]
            if token.strips_left:
                before = before.rstrip()
            if before:
                yield before
            yield token.token_id
            start = position = position + len(token.text)
            if token.strips_right:
                start = position = len(text) - len(text[position:].lstrip())
        if start < len(text):
            yield text[start:]
