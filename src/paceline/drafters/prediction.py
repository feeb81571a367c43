"""The prediction drafter: text the caller expects in the reply (OpenAI predicted outputs).

While the reply follows the prediction, the next predicted tokens are proposed. After a divergence it looks
for the longest run of last tokens that occurs further on in the prediction and goes on behind it; until one
is found it guesses that as many tokens were replaced as have come since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.config import Settings, check_float, check_int
from paceline.drafters.base import DraftContext, DrafterCapabilities
from paceline.drafters.scored_tree import ConfidenceTable, ScoredTree
from paceline.records import Draft, StepObservation
from paceline.tree import ROOT

_TRUST_AT_START = 8  # the caller's word counts like this many tokens seen to agree
_MOST_PLACES = 64  # places of one token that are compared in one search


@dataclass(frozen=True, slots=True)
class PredictionOptions(Settings):
    """``max_match``: longest run compared when re-aligning. ``settled_after``: tokens that must agree in a
    row before an alignment counts as certain, so that later searches start from there. ``min_probability``:
    a node is drafted only while its whole path is at least this likely.
    """

    max_match: int = 16
    settled_after: int = 4
    min_probability: float = 0.15

    def __post_init__(self) -> None:
        check_int("prediction: max_match", self.max_match, 1, 256)
        check_int("prediction: settled_after", self.settled_after, 1, 256)
        check_float("prediction: min_probability", self.min_probability, 0.0, 1.0)


class PredictionSession:
    """Drafting from one request's predicted tokens.

    ``cursor``: index of the predicted token expected next. ``agreed``: how many tokens in a row have followed
    the prediction up to there.
    """

    __slots__ = (
        "_anchor",
        "_grown",
        "_history",
        "_options",
        "_places",
        "_prediction",
        "_table",
        "agreed",
        "cursor",
    )

    def __init__(self, options: PredictionOptions, prediction: Sequence[int]) -> None:
        self._options = options
        self._prediction = tuple(prediction)
        self._places: dict[int, list[int]] = {}
        for position, token in enumerate(self._prediction):
            self._places.setdefault(token, []).append(position)
        self._history: list[int] = []
        self._anchor = 0
        self._table = ConfidenceTable()
        self._grown = ScoredTree()
        self.cursor = 0
        self.agreed = _TRUST_AT_START

    def propose(self, budget: int) -> Draft:
        """Return the predicted tokens that come next, as many as are likely enough to be accepted."""
        grown = self.grow(budget)
        return grown.draft(grown.count_above(self._options.min_probability, budget))

    def observe(self, step: StepObservation) -> None:
        """Follow the committed tokens through the prediction; re-align where they leave it."""
        self._grown.learn(self._table, step.committed)
        self._grown = ScoredTree()
        lost = False
        for token in step.committed:
            if self.cursor < len(self._prediction) and self._prediction[self.cursor] == token:
                self.agreed += 1
                if self.agreed >= self._options.settled_after:
                    self._anchor = self.cursor + 1
            else:
                self.agreed = 0
                lost = True
            self.cursor += 1
        self._history.extend(step.committed)
        del self._history[: -self._options.max_match]
        if lost or self.agreed < self._options.settled_after:
            self._realign()

    def stop(self) -> None:
        """Nothing is held outside the session."""

    def grow(self, limit: int) -> ScoredTree:
        """Return up to ``limit`` candidates in a chain.

        After L tokens in a row that agreed, the next one is expected to agree with probability
        (L + 1/2) / (L + 2), a rule of succession that starts from doubt.
        """
        tree = ScoredTree()
        self._grown = tree
        path, parent, agreed = 1.0, ROOT, float(self.agreed)
        for token in self._prediction[self.cursor : self.cursor + max(0, limit)]:
            raw = (agreed + 0.5) / (agreed + 2.0)
            path *= self._table.estimate(raw)
            parent = tree.add(token, parent, raw, path)
            agreed += 1.0
        return tree

    def _realign(self) -> None:
        """Move the cursor behind the longest run of last tokens from the anchor on; nearest wins a tie."""
        best, best_end = self.agreed, -1
        tried = 0
        for end in self._places.get(self._history[-1], ()):
            if end < self._anchor:
                continue
            tried += 1
            if tried > _MOST_PLACES:
                break
            length = self._common_run(end)
            if length > best:
                best, best_end = length, end
        if best_end >= 0:
            self.cursor = best_end + 1
            self.agreed = best
            if best >= self._options.settled_after:
                self._anchor = self.cursor

    def _common_run(self, end: int) -> int:
        """Return how many tokens before and at ``end`` equal the last tokens of the reply."""
        length = 0
        for token in reversed(self._history):
            if end < length or self._prediction[end - length] != token:
                break
            length += 1
        return length


@dataclass(frozen=True, slots=True)
class PredictionDrafter:
    """Opens :class:`PredictionSession` objects; silent for requests without a prediction."""

    options: PredictionOptions = PredictionOptions()

    @property
    def name(self) -> str:
        return "prediction"

    @property
    def capabilities(self) -> DrafterCapabilities:
        return DrafterCapabilities()

    def start(self, context: DraftContext) -> PredictionSession:
        """Index the prediction. O(its length)."""
        return PredictionSession(self.options, context.prediction)
