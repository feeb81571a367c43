"""Where two replies part, and what that means.

A difference between plain and speculative decoding is one of three things:

- ``bug``: the numbers say that plain decoding would not have done this.
- ``tie``: the two tokens' logits lie closer together than the numbers are certain (*within noise*).
- ``baseline``: plain decoding does not repeat itself here either, so that nothing can be said.

Where a forward gives the same bits whatever else is in the batch, noise is 0 and every difference is a bug.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["bug", "tie", "baseline"]
What = Literal["token", "logits", "text", "finish_reason", "usage", "logprob"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between a plain and another reply to a prompt.

    ``what``: token (another choice), logits (other bits behind the same choice), logprob (further apart than
    noise), or a field of the reply. ``position``: index of the token in the reply; of the character for a
    text without tokens. ``token_ids``, ``texts``: of the plain reply and of the other one; ``None`` and empty
    where a reply has ended or ids are not known. ``gap``: how much likelier the plain token was than the
    other one, in logits; ``None`` when unknown. ``noise``: the measured noise of a logit. ``subject``: which
    drafter or endpoint, and ``prompt``: which prompt.
    """

    kind: Kind
    position: int
    token_ids: tuple[int | None, int | None] = (None, None)
    texts: tuple[str, str] = ("", "")
    gap: float | None = None
    noise: float = 0.0
    what: What = "token"
    prompt: str = ""
    subject: str = ""

    def of(self, prompt: str, subject: str) -> Difference:
        """Return the same difference, labelled."""
        return replace(self, prompt=prompt, subject=subject)


def first_difference(one: Sequence[object], other: Sequence[object]) -> int | None:
    """Return the first index at which the two differ or only one has an entry; ``None`` when equal."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return None if len(one) == len(other) else min(len(one), len(other))


def kind_of(position: int, baseline: int | None, gap: float | None, noise: float) -> Kind:
    """Sort a difference at ``position``; ``baseline``: where plain decoding differed from itself, if it did.

    Two logits that are each uncertain by ``noise`` can change places while their gap is at most twice that.
    """
    if baseline is not None and baseline <= position:
        return "baseline"
    return "tie" if gap is not None and noise > 0.0 and gap <= 2.0 * noise else "bug"
