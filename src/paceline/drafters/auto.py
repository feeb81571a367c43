"""The drafter that decides for itself: cheap sources first, mixed in one tree, silent where it does not pay.

Each step it asks the caller's prediction (if there is one) and the suffix tree, and Token Recycling unless
those two already fill the budget with likely tokens. A draft head (EAGLE-3), where there is one for the
target, is asked when what it has promised of late beats what the cheap sources promise now, its own cost
counted; while it is not asked its cache waits and catches up later in one pass. The candidates go into one
tree; the verify cost curve and the estimated path probabilities say how many of the best nodes give the most
expected tokens per second, zero included. The estimates learn from every committed token, verified or not, so
a silent session notices for free when drafting would pay again. No clock is read: a decision depends on the
request's tokens, the shared tables and the cost curve.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from paceline.config import Settings, check_bool, check_float, check_int
from paceline.drafters.base import DraftContext, DrafterCapabilities
from paceline.drafters.eagle3 import Eagle3Drafter, Eagle3Options, Eagle3Session
from paceline.drafters.prediction import PredictionDrafter, PredictionOptions, PredictionSession
from paceline.drafters.recycle import RecycleDrafter, RecycleOptions, RecycleSession
from paceline.drafters.scored_tree import ScoredTree, merge_trees
from paceline.drafters.suffix import SuffixDrafter, SuffixOptions, SuffixSession
from paceline.drafters.trust import Trust
from paceline.drafters.verify_cost import Choice, VerifyCost
from paceline.errors import ConfigError
from paceline.records import EMPTY_DRAFT, Draft, StepObservation

logger = logging.getLogger("paceline.drafters")

_PARTS: dict[str, type] = {
    "verify_cost": VerifyCost,
    "prediction": PredictionOptions,
    "suffix": SuffixOptions,
    "recycle": RecycleOptions,
    "eagle3": Eagle3Options,
}


@dataclass(frozen=True, slots=True)
class AutoOptions(Settings):
    """Options of ``auto`` and of the sources it asks.

    ``verify_cost``: the curve r(M) the node count is chosen by. ``confident``: when the least likely
    candidate of prediction and suffix that fits the budget is at least this likely, recycling is not asked.
    ``silent_after``: after so many steps in a row without a draft only ``probe_nodes`` candidates are scored
    per step, until drafting pays again. ``eagle3``: for the draft head, if there is one; its nodes are chosen
    by ``verify_cost`` above. ``use_head``: whether the target's shipped head is used at all.
    """

    verify_cost: VerifyCost = field(default_factory=VerifyCost)
    confident: float = 0.4
    silent_after: int = 8
    probe_nodes: int = 2
    use_head: bool = True
    prediction: PredictionOptions = field(default_factory=PredictionOptions)
    suffix: SuffixOptions = field(default_factory=SuffixOptions)
    recycle: RecycleOptions = field(default_factory=RecycleOptions)
    eagle3: Eagle3Options = field(default_factory=Eagle3Options)

    def __post_init__(self) -> None:
        check_float("auto: confident", self.confident, 0.0, 1.0)
        check_int("auto: silent_after", self.silent_after, 1)
        check_int("auto: probe_nodes", self.probe_nodes, 1, 64)
        check_bool("auto: use_head", self.use_head)
        for name, kind in _PARTS.items():
            if not isinstance(getattr(self, name), kind):
                raise ConfigError(f"auto: {name}={getattr(self, name)!r}: give a {kind.__name__}")
        if self.eagle3.sampling != "tree":
            raise ConfigError(
                f"auto: eagle3.sampling={self.eagle3.sampling!r} does nothing here: auto mixes certain "
                "trees; use the drafter eagle3 for drawn chains"
            )


class AutoSession:
    """Drafting for one request from whatever pays."""

    __slots__ = (
        "_head",
        "_head_failed",
        "_options",
        "_paths",
        "_prediction",
        "_recycle",
        "_silent_steps",
        "_suffix",
        "_trust",
    )

    def __init__(
        self,
        options: AutoOptions,
        prediction: PredictionSession | None,
        suffix: SuffixSession,
        recycle: RecycleSession,
        head: Eagle3Session | None,
        head_failed: Callable[[Exception], None],
    ) -> None:
        self._options = options
        self._prediction = prediction
        self._suffix = suffix
        self._recycle = recycle
        self._head = head
        self._head_failed = head_failed
        self._trust = Trust()
        self._silent_steps = 0
        self._paths: list[float] = []

    def propose(self, budget: int) -> Draft:
        """Return the node count that promises the most tokens per second; often none."""
        if budget <= 0:
            return EMPTY_DRAFT
        silent = self._silent_steps >= self._options.silent_after
        limit = min(budget, self._options.probe_nodes) if silent else budget
        tree, is_confident = self._grow(limit)
        choice = self._best(tree, budget)
        if self._head is not None and not is_confident and self._head.pace.pays(choice.speed):
            tree, choice = self._ask_head(self._head, tree, budget)
        self._silent_steps = 0 if choice.count else self._silent_steps + 1
        self._paths = tree.paths
        return tree.draft(choice.count)

    def observe(self, step: StepObservation) -> None:
        """Let every source learn; compare what the draft promised with what was accepted."""
        if self._head is not None:
            self._tell_head(self._head, step)
        if not step.committed:
            return
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
        self._drop_head()

    def _grow(self, limit: int) -> tuple[ScoredTree, bool]:
        """Return the candidates of the cheap sources, and whether they are sure enough to ask no other."""
        trees = [self._suffix.grow(limit)]
        if self._prediction is not None:
            trees.insert(0, self._prediction.grow(limit))
        tree = merge_trees(trees, limit)
        if len(tree) >= limit and tree.paths[-1] >= self._options.confident:
            return tree, True
        return merge_trees([tree, self._recycle.grow(limit)], limit), False

    def _best(self, tree: ScoredTree, budget: int, spent: float = 0.0) -> Choice:
        factor = self._trust.factor
        return self._options.verify_cost.best([path * factor for path in tree.paths], budget, spent)

    def _ask_head(self, head: Eagle3Session, cheap: ScoredTree, budget: int) -> tuple[ScoredTree, Choice]:
        """Return the tree with the head's candidates in it and the best choice from it."""
        try:
            grown = head.grow(budget, self._trust.factor)
        except Exception as error:
            self._head_failed(error)
            self._drop_head()
            return cheap, self._best(cheap, budget)
        if grown is None:
            return cheap, self._best(cheap, budget)
        tree = merge_trees([cheap, grown], budget)
        choice = self._best(tree, budget, head.spent)
        head.pace.promised(choice.speed)
        return tree, choice

    def _tell_head(self, head: Eagle3Session, step: StepObservation) -> None:
        try:
            head.observe(step)
        except Exception as error:
            self._head_failed(error)
            self._drop_head()

    def _drop_head(self) -> None:
        head, self._head = self._head, None
        if head is not None:
            head.stop()


class AutoDrafter:
    """Opens :class:`AutoSession` objects over shared past replies, one shared successor table and one head.

    ``head``: the draft head of the target, if it has one. When it fails, a warning says so once, and it is
    asked no more.
    """

    def __init__(
        self, vocab_size: int, options: AutoOptions | None = None, head: Eagle3Drafter | None = None
    ) -> None:
        self.options = options or AutoOptions()
        self._prediction = PredictionDrafter(self.options.prediction)
        self._suffix = SuffixDrafter(self.options.suffix)
        self._recycle = RecycleDrafter(vocab_size, self.options.recycle)
        self.head = head

    @property
    def name(self) -> str:
        return "auto"

    @property
    def capabilities(self) -> DrafterCapabilities:
        layers = () if self.head is None else self.head.capabilities.state_layers
        return DrafterCapabilities(
            can_branch=True, num_top_tokens=self.options.recycle.num_successors, state_layers=layers
        )

    def start(self, context: DraftContext) -> AutoSession:
        """Open the sources' sessions."""
        prediction = self._prediction.start(context) if context.prediction else None
        head = None if self.head is None else self.head.start(context)
        return AutoSession(
            self.options,
            prediction,
            self._suffix.start(context),
            self._recycle.start(context),
            head,
            self._head_failed,
        )

    def _head_failed(self, error: Exception) -> None:
        if self.head is not None:
            logger.warning(
                "the draft head %s failed; auto goes on with its other sources",
                self.head.name,
                exc_info=error,
            )
        self.head = None
