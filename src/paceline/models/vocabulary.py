"""Do two models, or a model and a head, mean the same by every token id?"""

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


def shared_vocabulary_size(
    target: Sequence[str], draft: Sequence[str], draft_name: str, kind: str = "draft model"
) -> int:
    """Return how many leading ids both vocabularies have, after checking that they agree on every one.

    ``target`` and ``draft`` hold the text of each id as their tokenizers spell it. One of them may go on with
    padding rows, and ids that are padding in both may be spelt differently. ``kind``: what ``draft_name``
    is, for the message. Raises ``VocabularyMismatchError`` naming the first id that differs and both texts.
    """
    shared = min(len(target), len(draft))
    for token_id in range(shared):
        ours, theirs = target[token_id], draft[token_id]
        if ours != theirs and not (is_padding(ours) and is_padding(theirs)):
            raise _mismatch(token_id, repr(ours), repr(theirs), draft_name, kind)
    for token_id in range(shared, len(target)):
        if not is_padding(target[token_id]):
            raise _mismatch(token_id, repr(target[token_id]), "no such id", draft_name, kind)
    for token_id in range(shared, len(draft)):
        if not is_padding(draft[token_id]):
            raise _mismatch(token_id, "no such id", repr(draft[token_id]), draft_name, kind)
    return shared


def _mismatch(token_id: int, ours: str, theirs: str, draft_name: str, kind: str) -> VocabularyMismatchError:
    return VocabularyMismatchError(
        f"{kind} {draft_name!r} does not share the target's vocabulary: id {token_id} is {ours} for the "
        f"target and {theirs} for the {kind}; take a {kind} of the same family and tokenizer, or "
        "drafter='auto', which needs no second model"
    )
