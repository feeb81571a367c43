"""Two engines answering the same prompt side by side, each on a clock of its own.

They take turns step by step, and the one whose clock is behind moves next. So the text of both grows as it
would if each had the machine to itself, only at half the pace, and neither is slowed by the other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from paceline.engine.engine import Engine
from paceline.engine.outputs import CompletionOutput
from paceline.sampling.params import SamplingParams

_request_numbers = count()


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that one step added, and how many tokens it was."""

    text: str
    num_tokens: int


@dataclass(slots=True)
class Contender:
    """One side: an engine, what it has said so far, and the seconds its own steps took."""

    name: str
    engine: Engine
    pieces: list[Piece] = field(default_factory=list)
    seconds: float = 0.0
    completion: CompletionOutput | None = None

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def num_tokens(self) -> int:
        return sum(piece.num_tokens for piece in self.pieces)

    @property
    def tokens_per_s(self) -> float:
        """Tokens ÷ seconds so far, prompt processing included."""
        return self.num_tokens / self.seconds if self.seconds else 0.0

    def start(self, prompt: Sequence[int], params: SamplingParams) -> None:
        """Hand the prompt over. Raises what ``Engine.add_request`` raises."""
        self.engine.add_request(f"duel-{next(_request_numbers)}", prompt, params)

    def step(self) -> None:
        """Run one step of the engine, which must have no other request."""
        begin = time.perf_counter()
        outputs = self.engine.step()
        self.seconds += time.perf_counter() - begin
        for output in outputs:
            self.pieces.append(Piece(output.text, len(output.token_ids)))
            self.completion = output.completion


def run_duel(
    contenders: Sequence[Contender], prompt: Sequence[int], params: SamplingParams
) -> Iterator[Contender]:
    """Answer ``prompt`` on every side; yield each contender that moved, until all have finished."""
    for contender in contenders:
        contender.start(prompt, params)
    while running := [c for c in contenders if c.completion is None]:
        next_one = min(running, key=lambda c: c.seconds)
        next_one.step()
        yield next_one


@dataclass(frozen=True, slots=True)
class Verdict:
    """``same_tokens``: the token ids are equal. ``same_bits``: so are the logits each was chosen from."""

    same_tokens: bool
    same_bits: bool

    @property
    def identical(self) -> bool:
        return self.same_tokens and self.same_bits


def compare(first: CompletionOutput, second: CompletionOutput) -> Verdict:
    """Compare two replies by token ids and by the hashes of their logits.

    Raises ``ValueError`` when an engine did not record hashes: then nothing can be said about bits.
    """
    if first.logit_hashes is None or second.logit_hashes is None:
        raise ValueError("comparing bits needs engines with record_logit_hashes=True")
    return Verdict(first.token_ids == second.token_ids, first.logit_hashes == second.logit_hashes)
