"""Text any language model can copy, for the self-test of a draft model."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.models.vocabulary import is_padding as is_padding
from paceline.models.vocabulary import shared_vocabulary_size as shared_vocabulary_size


def copy_prompt(vocabulary: Sequence[str], num_words: int = 24, repeats: int = 3) -> tuple[int, ...]:
    """Return ids of ``num_words`` plain words, ``repeats`` times over: text any language model can copy.

    Words are ids whose text is a word start (``Ġ`` or ``▁``) and at least three ASCII letters, spread evenly
    over the vocabulary; without such ids, any ids that are no padding.
    """
    words = [i for i, text in enumerate(vocabulary) if _is_word(text)]
    if len(words) < num_words:
        words = [i for i, text in enumerate(vocabulary) if not is_padding(text)]
    step = max(1, len(words) // num_words)
    return tuple(words[::step][:num_words]) * repeats


def _is_word(text: str) -> bool:
    return len(text) >= 4 and text[0] in "Ġ▁" and text[1:].isascii() and text[1:].isalpha()
