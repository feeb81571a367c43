"""One request under ``auto``: what is asked in a step, and how much of it is drafted."""

from __future__ import annotations

from collections.abc import Callable

from paceline.control.decisions import Candidates, Decision, Reason
from paceline.control.estimates import DepthEstimates
from paceline.control.probing import Probing
from paceline.drafters.auto_batches import BatchLimits
from paceline.drafters.auto_head import HeadSource
from paceline.drafters.auto_options import AutoOptions
from paceline.drafters.eagle3 import Eagle3Session
from paceline.drafters.prediction import PredictionSession
from paceline.drafters.scored_tree import ScoredTree, corrected, graft, likeliest_leaf, merge_trees
from paceline.drafters.suffix import SuffixSession
from paceline.drafters.verify_cost import Choice
from paceline.records import ALONE, EMPTY_DRAFT, BatchLoad, Draft, StepObservation
from paceline.tree import ROOT

CHEAP_SOURCES = ("prediction", "suffix")
_SURE_LEAF = 0.3  # a path of the head that may begin a copy: less likely ones are not looked up
_GO_ON, _BEGIN = 0.5, 2.0  # times min_gain: hysteresis
WHOLE = 8  # nodes of a whole draft: the ledger or the end of the reply may allow fewer for a moment
_KEEP_ALONE = 0.9
# Steps until a full batch is looked at again, and half as many as it has requests: it may have emptied.
_LOOK_AGAIN = 4
_NOTHING, _PLAIN = ScoredTree(), Choice(0, 1.0)  # what sources that rest offer


class AutoSession:
    """Drafting for one request from whatever pays.

    ``length``: tokens of the prompt. ``spent``: what drafting has cost in this step, in one-row target
    forwards.
    """

    __slots__ = (
        "_active",
        "_alone",
        "_batches",
        "_decision",
        "_explain",
        "_head",
        "_is_asked",
        "_length",
        "_load",
        "_offers",
        "_options",
        "_prediction",
        "_probing",
        "_rest",
        "_suffix",
        "_unseen",
        "estimates",
        "spent",
    )

    def __init__(
        self,
        length: int,
        options: AutoOptions,
        batches: BatchLimits,
        prediction: PredictionSession | None,
        suffix: SuffixSession,
        head: Eagle3Session | None,
        head_failed: Callable[[Exception], None],
        explain: bool = False,
    ) -> None:
        self._length = length
        self._options = options
        self._batches = batches
        self._prediction = prediction
        self._suffix = suffix
        self._head = HeadSource(head, head_failed)
        self._explain = explain
        self._decision: Decision | None = None
        self._load = ALONE
        self._probing = Probing()
        self._is_asked = True
        self._alone = 1.0  # speed that the head promises without the cheap sources, of late
        self._unseen: list[int] = []
        self._rest = 0
        self._active = True
        self._offers: list[tuple[str, ScoredTree]] = []
        self.estimates = {name: DepthEstimates() for name in CHEAP_SOURCES}
        self.spent = 0.0

    @property
    def rest(self) -> int:
        """Steps until the sources are due again, once there is no head; none while decisions are recorded."""
        return 0 if self._explain or self.wants_states else self._rest

    @property
    def wants_states(self) -> bool:
        """The head lives on them, while there is one."""
        return self._head.session is not None

    @property
    def decision(self) -> Decision | None:
        """See :class:`~paceline.control.decisions.Decision`; ``None`` unless the context asked for it."""
        return self._decision

    def meet(self, load: BatchLoad) -> None:
        """Take what the next forward holds already: the more, the less is drafted."""
        self._load = load

    def propose(self, budget: int) -> Draft:
        """Return the node count that promises the most tokens per second; often none."""
        self._probing.skip(self.rest)
        self.spent, self._offers, self._is_asked, self._rest = 0.0, [], False, 0
        if budget <= 0:
            return self._silent("no budget")
        if self._load.num_requests > 1 and not self._batches.can_pay(self._load, budget):
            if self.wants_states and not self._batches.can_pay(self._load, WHOLE):
                self._head.drop()  # its states would be copied in every step of such a batch
            self._rest = _LOOK_AGAIN + self._load.num_requests // 2
            return self._silent("full batch")
        if self._probing.is_due():
            tree, choice, is_confident = self._ask_cheap(budget)
        else:
            tree, choice, is_confident = _NOTHING, _PLAIN, False
        if not is_confident and self._head.pays(choice.speed, self._load):
            tree, choice = self._ask_head(tree, budget)
        elif not self._is_asked:
            self._rest = self._probing.rest
            return self._silent("resting")
        if self._is_asked:
            # What they add to what the head would have given: where it alone is as good, they may rest.
            self._probing.learn(choice.speed - (self._alone if self.wants_states else 1.0))
            self._rest = self._probing.rest
        return self._chosen(tree, choice, "pays" if choice.count else "does not pay")

    def observe(self, step: StepObservation) -> None:
        """Let every source learn; compare what each offered with what was written."""
        self._head.observe(step)
        if not step.committed:
            return
        self._length += len(step.committed)
        for name, tree in self._offers:
            self.estimates[name].learn_tree(tree.tokens, tree.parents, tree.paths, step.committed)
        self._offers = []
        if self._is_asked:
            self._tell_cheap(step)
        else:
            self._unseen.extend(step.committed)
        self._is_asked = False

    def states_wanted_from(self, limit: int, num_requests: int) -> int:
        """See :class:`~paceline.drafters.base.RememberingSession`."""
        if num_requests > 1 and not self._batches.can_pay(BatchLoad(num_requests, num_requests), WHOLE):
            self._head.drop()
        return self._head.states_wanted_from(limit)

    def stop(self) -> None:
        """Stop the sources; the suffix tree keeps the reply for later requests."""
        self._catch_up()
        if self._prediction is not None:
            self._prediction.stop()
        self._suffix.stop()
        self._head.drop()

    def _ask_cheap(self, budget: int) -> tuple[ScoredTree, Choice, bool]:
        """Return the candidates of the cheap sources, what is best of them, and if they need no other."""
        self._catch_up()
        self._is_asked = True
        self.spent = self._options.ask_cost
        tree, is_confident = self._grow(budget)
        return tree, self._best(tree, budget), is_confident

    def _grow(self, limit: int) -> tuple[ScoredTree, bool]:
        """Return the candidates of the cheap sources, and whether they are sure enough to ask no other."""
        trees = [self._offer("suffix", self._suffix.grow(limit))]
        if self._prediction is not None:
            trees.insert(0, self._offer("prediction", self._prediction.grow(limit)))
        tree = merge_trees(trees, limit)
        return tree, len(tree) >= limit and tree.paths[-1] >= self._options.confident

    def _offer(self, name: str, tree: ScoredTree) -> ScoredTree:
        """Remember what a source promised; return it as far as this request has borne it out."""
        if len(tree):
            self._offers.append((name, tree))
        return corrected(tree, self.estimates[name])

    def _best(self, tree: ScoredTree, budget: int) -> Choice:
        """Drafting that goes on may promise a little less than drafting that begins again."""
        cost = self._options.verify_cost
        gain = cost.min_gain * (_GO_ON if self._active else _BEGIN)
        return cost.best(tree.paths, budget, self.spent, self._load, gain, self._length)

    def _silent(self, reason: Reason) -> Draft:
        """Nobody was asked: as little is done as can be, for most steps of many requests are such."""
        self._active = False
        if self._explain:
            self._decision = Decision((), 0, 0.0, 1.0, 0.0, reason)
        return EMPTY_DRAFT

    def _chosen(self, tree: ScoredTree, choice: Choice, reason: Reason) -> Draft:
        self._active = choice.count > 0
        if self._explain:
            self._decision = Decision(
                tuple(Candidates(name, len(offer), sum(offer.paths)) for name, offer in self._told()),
                choice.count,
                sum(tree.paths[: choice.count]),
                choice.speed,
                self.spent,
                reason,
            )
        return tree.draft(choice.count)

    def _told(self) -> list[tuple[str, ScoredTree]]:
        head = self._head.grown
        return [*self._offers, *([("eagle3", head)] if len(head) else [])]

    def _ask_head(self, cheap: ScoredTree, budget: int) -> tuple[ScoredTree, Choice]:
        """Return the tree with the head's candidates in it and the best choice from it."""
        grown = self._head.grow(budget, self._load)
        if grown is None:
            return cheap, self._best(cheap, budget)
        cheap_spent, self.spent = self.spent, self._head.spent
        alone = self._best(grown, budget).speed
        self._alone = max(1.0, _KEEP_ALONE * self._alone + (1.0 - _KEEP_ALONE) * alone)
        self.spent += cheap_spent
        tree = merge_trees([cheap, self._extended(grown, budget)], budget)
        choice = self._best(tree, budget)
        self._head.promised(choice.speed, tree.paths)
        return tree, choice

    def _extended(self, grown: ScoredTree, budget: int) -> ScoredTree:
        """Let the suffix tree go on behind the head's likeliest leaf, where that begins a copy."""
        leaf = likeliest_leaf(grown)
        if not self._is_asked or leaf == ROOT or grown.paths[leaf] < _SURE_LEAF:
            return grown
        more = self._suffix.grow_behind(grown.path_tokens(leaf), budget)
        return graft(grown, leaf, more) if len(more) else grown

    def _tell_cheap(self, step: StepObservation) -> None:
        if self._prediction is not None:
            self._prediction.observe(step)
        self._suffix.observe(step)

    def _catch_up(self) -> None:
        """Tell the cheap sources what was written while they rested."""
        if self._unseen:
            unseen, self._unseen = tuple(self._unseen), []
            self._tell_cheap(StepObservation(unseen, 0))
