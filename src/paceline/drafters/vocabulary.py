"""Do a draft model and its target mean the same by every token id?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from paceline.errors import VocabularyMismatchError

# Names that model files give to ids without a token: rows added so that a matrix gets a round size.
_PADDING = re.compile(
    r"\[PAD\d*\]|<(?:\|)?(?:pad|padding|unused|reserved|dummy|extra_id)[^>]*>|", re.IGNORECASE
)


def is_padding(token: str) -> bool:
    """Return whether a token's text marks a row that stands for no token."""
    return _PADDING.fullmatch(token) is not None


def shared_vocabulary_size(target: Sequence[str], draft: Sequence[str], draft_name: str) -> int:
    """Return how many leading ids both vocabularies have, after checking that they agree on every one.

    ``target`` and ``draft`` hold the text of each id as their tokenizers spell it. One of them may go on with
    padding rows, and ids that are padding in both may be spelt differently. Raises
    ``VocabularyMismatchError`` naming the first id that differs and both texts.
    """
    shared = min(len(target), len(draft))
    for token_id in range(shared):
        ours, theirs = target[token_id], draft[token_id]
        if ours != theirs and not (is_padding(ours) and is_padding(theirs)):
            raise _mismatch(token_id, repr(ours), repr(theirs), draft_name)
    for token_id in range(shared, len(target)):
        if not is_padding(target[token_id]):
            raise _mismatch(token_id, repr(target[token_id]), "no such id", draft_name)
    for token_id in range(shared, len(draft)):
        if not is_padding(draft[token_id]):
            raise _mismatch(token_id, "no such id", repr(draft[token_id]), draft_name)
    return shared


def _mismatch(token_id: int, ours: str, theirs: str, draft_name: str) -> VocabularyMismatchError:
    return VocabularyMismatchError(
        f"draft model {draft_name!r} does not share the target's vocabulary: id {token_id} is {ours} for the "
        f"target and {theirs} for the draft model; take a draft model of the same family and tokenizer, or "
        "drafter='auto', which needs no second model"
    )


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
