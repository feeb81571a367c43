"""Byte-level BPE as it is described in papers: no tricks, no caches, one merge at a time."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import regex

from support.tiny_tokenizer import byte_letters

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "default": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama-bpe": (_LLAMA3,),
    "qwen2": (_LLAMA3.replace("{1,3}", ""),),
}
"""Word patterns as the models' makers publish them; with two, the second cuts what the first leaves."""


class ReferenceBpe:
    """Encodes text without special tokens."""

    def __init__(self, pre: str, tokens: list[str], merges: list[str]) -> None:
        self._patterns = [regex.compile(pattern) for pattern in WORDS[pre]]
        self._composes = pre == "qwen2"
        self._ids = {token: index for index, token in enumerate(tokens)}
        self._ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        self._letters = byte_letters()

    def encode(self, text: str) -> list[int]:
        pieces = [unicodedata.normalize("NFC", text) if self._composes else text]
        for pattern in self._patterns:
            pieces = [part for piece in pieces for part in _isolate(pattern, piece)]
        return [self._ids[part] for piece in pieces for part in self._merge(piece) if part in self._ids]

    def _merge(self, word: str) -> list[str]:
        parts = [self._letters[byte] for byte in word.encode()]
        while True:
            ranked = [(self._ranks.get(pair, 1 << 30), i) for i, pair in enumerate(pairwise(parts))]
            rank, at = min(ranked, default=(1 << 30, 0))
            if rank == 1 << 30:
                return parts
            parts[at : at + 2] = [parts[at] + parts[at + 1]]


def _isolate(pattern: regex.Pattern[str], text: str) -> list[str]:
    """Cut ``text`` into matches and what lies between them."""
    pieces, end = [], 0
    for match in pattern.finditer(text):
        pieces += [text[end : match.start()], match.group()]
        end = match.end()
    return [piece for piece in [*pieces, text[end:]] if piece]
