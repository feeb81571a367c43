"""Which token each piece of shown text came from, although text is held back and cut behind the tokens."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from paceline.engine.outputs import Logprob, StepOutput
from paceline.models.tokenizer import Tokenizer
from paceline.records import Origin


@dataclass(frozen=True, slots=True)
class Piece:
    """What one token added to the shown text. ``text`` is empty for half a character, or a hidden token.

    ``logprob``: the entry of the step (token id → :class:`Logprob`), where it was asked for. A token whose
    text comes out in two parts gives two pieces; the second has no entry.
    """

    token_id: int
    text: str
    origin: Origin
    logprob: dict[int, Logprob] | None


class Pieces:
    """Follows one reply. The pieces' texts together are the shown text; tokens that a stop rule cut off, and
    the token that ended the reply, give none.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool, include_stop: bool) -> None:
        self._decoder = tokenizer.stream(skip_special=skip_special)
        self._include_stop = include_stop
        self._waiting: deque[Piece] = deque()

    def push(self, step: StepOutput) -> list[Piece]:
        """Take one step's tokens; return the pieces of the text it shows."""
        entries = step.logprobs or (None,) * len(step.token_ids)
        for token, origin, entry in zip(step.token_ids, step.origins, entries, strict=True):
            self._waiting.append(Piece(token, self._decoder.push(token), origin, entry))
        ended_by_token = (
            step.completion is not None
            and step.completion.finish_reason == "stop"
            and not isinstance(step.completion.stop_reason, str)
        )
        if ended_by_token and not self._include_stop and self._waiting:
            self._waiting.pop()
        return self._release(step.text, ended=step.completion is not None)

    def _release(self, text: str, ended: bool) -> list[Piece]:
        pieces: list[Piece] = []
        while self._waiting:
            piece = self._waiting.popleft()
            if len(piece.text) <= len(text):
                pieces.append(piece)
                text = text[len(piece.text) :]
                continue
            if text:  # a part of it is shown, the rest may yet be
                pieces.append(Piece(piece.token_id, text, piece.origin, piece.logprob))
                piece = Piece(piece.token_id, piece.text[len(text) :], piece.origin, None)
                text = ""
            self._waiting.appendleft(piece)
            break
        if ended and text and pieces:  # what ends an unfinished character belongs to the last token
            last = pieces.pop()
            pieces.append(Piece(last.token_id, last.text + text, last.origin, last.logprob))
        return pieces
