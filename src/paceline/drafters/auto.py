"""The drafter that decides for itself: cheap sources first, mixed in one tree, silent where it does not pay.

Each step it asks the caller's prediction (if there is one) and the suffix tree, and Token Recycling unless
those two already fill the budget with likely tokens. The candidates go into one tree; the verify cost curve
and the estimated path probabilities say how many of the best nodes give the most expected tokens per second,
zero included. The estimates learn from every committed token, verified or not, so a silent session notices
for free when drafting would pay again. No clock is read: a decision depends on the request's tokens, the
shared tables and the cost curve.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.config import Settings, check_float, check_int
from paceline.drafters.base import DraftContext, DrafterCapabilities
from paceline.drafters.prediction import PredictionDrafter, PredictionOptions, PredictionSession
from paceline.drafters.recycle import RecycleDrafter, RecycleOptions, RecycleSession
from paceline.drafters.scored_tree import ScoredTree, merge_trees
from paceline.drafters.suffix import SuffixDrafter, SuffixOptions, SuffixSession
from paceline.drafters.verify_cost import VerifyCost
from paceline.errors import ConfigError
from paceline.records import EMPTY_DRAFT, Draft, StepObservation

_PARTS: dict[str, type] = {
    "verify_cost": VerifyCost,
    "prediction": PredictionOptions,
    "suffix": SuffixOptions,
    "recycle": RecycleOptions,
}


@dataclass(frozen=True, slots=True)
class AutoOptions(Settings):
    """Options of ``auto`` and of the sources it asks.

    ``verify_cost``: the curve r(M) the node count is chosen by. ``confident``: when the least likely
    candidate of prediction and suffix that fits the budget is at least this likely, recycling is not asked.
    ``silent_after``: after so many steps in a row without a draft only ``probe_nodes`` candidates are scored
    per step, until drafting pays again.
    """

    verify_cost: VerifyCost = field(default_factory=VerifyCost)
    confident: float = 0.4
    silent_after: int = 8
    probe_nodes: int = 2
    prediction: PredictionOptions = field(default_factory=PredictionOptions)
    suffix: SuffixOptions = field(default_factory=SuffixOptions)
    recycle: RecycleOptions = field(default_factory=RecycleOptions)

    def __post_init__(self) -> None:
        check_float("auto: confident", self.confident, 0.0, 1.0)
        check_int("auto: silent_after", self.silent_after, 1)
        check_int("auto: probe_nodes", self.probe_nodes, 1, 64)
        for name, kind in _PARTS.items():
            if not isinstance(getattr(self, name), kind):
                raise ConfigError(f"auto: {name}={getattr(self, name)!r}: give a {kind.__name__}")


class Trust:
    """How the accepted tokens of this request compare with the promised ones, exponentially weighted.

    Multiplies every path probability, so that estimates which are too rosy as a whole stop costing time.
    """

    __slots__ = ("_accepted", "_promised")

    _KEEP = 0.93
    _PRIOR = 2.0  # accepted tokens the prior is worth

    def __init__(self) -> None:
        self._accepted = self._PRIOR
        self._promised = self._PRIOR

    @property
    def factor(self) -> float:
        """Accepted ÷ promised tokens of late, between 1/4 and 5/4."""
        return min(1.25, max(0.25, self._accepted / self._promised))

    def learn(self, promised: float, accepted: int) -> None:
        """Count one verified draft. ``promised``: the sum of its nodes' path probabilities."""
        keep, prior = self._KEEP, self._PRIOR * (1 - self._KEEP)
        self._accepted = self._accepted * keep + accepted + prior
        self._promised = self._promised * keep + promised + prior


class AutoSession:
    """Drafting for one request from whatever pays."""

    __slots__ = ("_options", "_paths", "_prediction", "_recycle", "_silent_steps", "_suffix", "_trust")

    def __init__(
        self,
        options: AutoOptions,
        prediction: PredictionSession | None,
        suffix: SuffixSession,
        recycle: RecycleSession,
    ) -> None:
        self._options = options
        self._prediction = prediction
        self._suffix = suffix
        self._recycle = recycle
        self._trust = Trust()
        self._silent_steps = 0
        self._paths: list[float] = []

    def propose(self, budget: int) -> Draft:
        """Return the node count that promises the most tokens per second; often none."""
        if budget <= 0:
            return EMPTY_DRAFT
        silent = self._silent_steps >= self._options.silent_after
        tree = self._grow(min(budget, self._options.probe_nodes) if silent else budget)
        factor = self._trust.factor
        count = self._options.verify_cost.best_count([path * factor for path in tree.paths], budget)
        self._silent_steps = 0 if count else self._silent_steps + 1
        self._paths = tree.paths
        return tree.draft(count)

    def observe(self, step: StepObservation) -> None:
        """Let every source learn; compare what the draft promised with what was accepted."""
        verified = len(step.draft)
        if verified:
            self._trust.learn(sum(self._paths[:verified]), step.num_accepted_tokens)
        if self._prediction is not None:
            self._prediction.observe(step)
        self._suffix.observe(step)
        self._recycle.observe(step)

    def stop(self) -> None:
        """Stop the sources; the suffix tree keeps the reply for later requests."""
        if self._prediction is not None:
            self._prediction.stop()
        self._suffix.stop()
        self._recycle.stop()

    def _grow(self, limit: int) -> ScoredTree:
        trees = [self._suffix.grow(limit)]
        if self._prediction is not None:
            trees.insert(0, self._prediction.grow(limit))
        tree = merge_trees(trees, limit)
        if len(tree) >= limit and tree.paths[-1] >= self._options.confident:
            return tree
        return merge_trees([tree, self._recycle.grow(limit)], limit)


class AutoDrafter:
    """Opens :class:`AutoSession` objects over shared past replies and one shared successor table."""

    def __init__(self, vocab_size: int, options: AutoOptions | None = None) -> None:
        self.options = options or AutoOptions()
        self._prediction = PredictionDrafter(self.options.prediction)
        self._suffix = SuffixDrafter(self.options.suffix)
        self._recycle = RecycleDrafter(vocab_size, self.options.recycle)

    @property
    def name(self) -> str:
        return "auto"

    @property
    def capabilities(self) -> DrafterCapabilities:
        return DrafterCapabilities(can_branch=True, num_top_tokens=self.options.recycle.num_successors)

    def start(self, context: DraftContext) -> AutoSession:
        """Open the sources' sessions."""
        prediction = self._prediction.start(context) if context.prediction else None
        return AutoSession(
            self.options, prediction, self._suffix.start(context), self._recycle.start(context)
        )
