"""The EAGLE-3 drafter: a small head reads the target's own hidden states and writes ahead (Li et al. 2025,
arXiv 2503.01840).

A draft is a *certain* tree of the head's likeliest tokens, made in one native call and cut to the nodes that
pay; it is exact at every temperature, since each node is checked against the target's own choice. With
``sampling="chain"`` requests that sample get a chain of tokens drawn from the head by their own sampler
instead, which carries its law. The head's vocabulary is a part of the target's; ids it lacks are never
drafted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from paceline.config import Settings, check_choice, check_float, check_int
from paceline.control.decisions import Decision
from paceline.control.default_costs import CATCH_UP_COST, LEVEL_COST
from paceline.control.estimates import DepthEstimates
from paceline.drafters.base import DraftContext, DrafterCapabilities
from paceline.drafters.draft_ids import DraftIds
from paceline.drafters.head_pace import HeadCost, HeadPace
from paceline.drafters.head_sequence import Eagle3Head as Eagle3Head
from paceline.drafters.head_sequence import HeadSequence
from paceline.drafters.scored_tree import ConfidenceTable, ScoredTree, best_nodes, corrected
from paceline.drafters.verify_cost import VerifyCost
from paceline.errors import ConfigError, DrafterError
from paceline.executors.eagle3 import DraftedTree, DraftShape
from paceline.records import ALONE, EMPTY_DRAFT, BatchLoad, Draft, FloatArray, StepObservation, TokenLaw
from paceline.tree import ROOT

Sampling = Literal["tree", "chain"]


@dataclass(frozen=True, slots=True)
class Eagle3Options(Settings):
    """``verify_cost``: the curve r(M). ``step_cost``: c, time of one draft step ÷ time of a one-row target
    forward. ``catch_up_cost``: the same for what a draft costs beyond its steps, since the first one also
    reads what was committed. ``max_depth``: most levels of a draft; ``width``: nodes per level that are
    drafted on from (1: a chain). ``sampling``: what requests that sample are drafted by: ``tree``, the
    likeliest tokens, or ``chain``, tokens drawn from the head.
    """

    verify_cost: VerifyCost = field(default_factory=VerifyCost)
    step_cost: float = LEVEL_COST
    catch_up_cost: float = CATCH_UP_COST
    max_depth: int = 7
    width: int = 3
    sampling: Sampling = "tree"

    def __post_init__(self) -> None:
        if not isinstance(self.verify_cost, VerifyCost):
            raise ConfigError(f"eagle3: verify_cost={self.verify_cost!r}: give a VerifyCost")
        check_float("eagle3: step_cost", self.step_cost, 0.0, 10.0)
        check_float("eagle3: catch_up_cost", self.catch_up_cost, 0.0, 10.0)
        check_int("eagle3: max_depth", self.max_depth, 1, 64)
        check_int("eagle3: width", self.width, 1, 64)
        check_choice("eagle3: sampling", self.sampling, ("tree", "chain"))

    @property
    def drafting(self) -> HeadCost:
        """What a draft costs by its levels."""
        return HeadCost(self.catch_up_cost, self.step_cost)


class Eagle3Session:
    """Drafting for one request.

    ``pace``: what the head has shown. ``estimates``: how often it was right at each depth. ``spent``: what
    drafting has cost in this step, in one-row target forwards.

    The head's cache follows the target's states, not its own drafts: see :class:`HeadSequence`.
    """

    __slots__ = (
        "_draft_ids",
        "_executor",
        "_grown",
        "_load",
        "_num_levels",
        "_options",
        "_sampler",
        "_samples",
        "_sequence",
        "_table",
        "estimates",
        "pace",
        "spent",
    )

    def __init__(
        self,
        head: Eagle3Head,
        draft_ids: DraftIds,
        options: Eagle3Options,
        table: ConfidenceTable,
        context: DraftContext,
    ) -> None:
        self._executor = head.executor
        self._options = options
        self._table = table
        self._draft_ids = draft_ids
        self._sampler = context.sampler
        self._samples = options.sampling == "chain" and context.rule != "greedy"
        self._sequence = HeadSequence(head, context.prompt_token_ids)
        self._grown = ScoredTree()
        self._num_levels = 0
        self._load = ALONE
        self.estimates = DepthEstimates()
        self.pace = HeadPace(options.verify_cost, options.drafting, context.rule == "greedy")
        self.spent = 0.0

    @property
    def rest(self) -> int:
        """None: it wants each step's states."""
        return 0

    @property
    def wants_states(self) -> bool:
        """Always: a caller who names a head keeps it."""
        return True

    @property
    def decision(self) -> Decision | None:
        """Nothing is recorded: it chooses by one number, what the head has promised."""
        return None

    @property
    def num_cached(self) -> int:
        """Pairs whose keys and values the head holds."""
        return self._sequence.cached

    def meet(self, load: BatchLoad) -> None:
        """Take what the next forward holds already: the more, the less is drafted."""
        self._load = load

    def propose(self, budget: int) -> Draft:
        """Return the tree or chain that promises the most tokens per second.

        Empty while the states of the prompt have not come, past the head's context, while other requests hold
        so many blocks of its cache that this one does not fit, and where the head does not pay.
        """
        self.spent = 0.0
        if self._samples:
            return self._propose_chain(budget)
        if not self.pace.pays(1.0, self._load):
            return EMPTY_DRAFT
        tree = self.grow(budget, self._load)
        if tree is None:
            return EMPTY_DRAFT
        choice = self._options.verify_cost.best(tree.paths, budget, self.spent, self._load)
        self.pace.promised(choice.speed, tree.paths, self._num_levels)
        return tree.draft(choice.count)

    def observe(self, step: StepObservation) -> None:
        """Learn how the last draft fared and take the states of the tokens it confirmed."""
        if step.committed:
            self.learn(step)
        self._sequence.observe(step.states, step.committed)

    def states_wanted_from(self, limit: int, num_requests: int = 1) -> int:
        """See :class:`~paceline.drafters.base.RememberingSession`."""
        return self._sequence.states_wanted_from(limit)

    def stop(self) -> None:
        """Give the blocks back."""
        self._sequence.release()

    @property
    def num_levels(self) -> int:
        """Levels of the last draft."""
        return self._num_levels

    @property
    def grown(self) -> ScoredTree:
        """Candidates of this step, as the head promised them."""
        return self._grown

    def grow(self, limit: int, load: BatchLoad = ALONE) -> ScoredTree | None:
        """Return up to ``limit`` candidates, likeliest path first, in one native call.

        ``None`` when it cannot run now. Path probabilities are those that this request has borne out.
        """
        self._load = load
        levels = self._room(min(limit, self._options.max_depth))
        if levels <= 0:
            return None
        width = min(self._options.width, limit)
        least = self.pace.least_parent(limit, self.estimates.factor, self._load)
        shape = DraftShape(limit, levels, width, min_parent_log_prob=least)
        opened = self._sequence.open(spare=shape.num_slots)
        if opened is None:
            return None
        states, batch = opened
        drafted = self._executor.draft(batch, states, shape)
        self._sequence.close()
        tree = self._grown = self._scored(drafted)
        self.spent = self._options.drafting.at(max(1, self._num_levels))
        return corrected(tree, self.estimates)

    def learn(self, step: StepObservation) -> None:
        """Compare the last candidates with what was committed, whether or not they were verified."""
        grown = self._grown
        grown.learn(self._table, step.committed)
        if self._num_levels:
            accepted = step.num_accepted_tokens
            if len(grown):
                accepted = self.estimates.learn_tree(grown.tokens, grown.parents, grown.paths, step.committed)
            self.pace.learn(self._num_levels, accepted, len(step.committed))
        self._grown = ScoredTree()
        self._num_levels = 0

    def _scored(self, drafted: DraftedTree) -> ScoredTree:
        """Return the drafted nodes with the acceptance this head has shown at their confidence."""
        tree, log_probs = ScoredTree(), drafted.log_probs.tolist()
        depths: list[int] = []
        for token, parent, log_prob in zip(
            drafted.tokens.tolist(), drafted.parents.tolist(), log_probs, strict=True
        ):
            above = 0.0 if parent == ROOT else log_probs[parent]
            raw = min(1.0, math.exp(log_prob - above))
            path = (1.0 if parent == ROOT else tree.paths[parent]) * self._table.estimate(raw)
            tree.add(token, parent, raw, path)
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        self._num_levels = max(depths, default=0)
        return best_nodes(tree, len(tree))

    def _room(self, levels: int) -> int:
        """Return how many of ``levels`` fit the head's context; 0 until all states are there."""
        if not self._sequence.is_complete:
            return 0
        # Level d + 1 comes from a row at position (pairs - 1) + d.
        return min(levels, self._executor.spec.max_context - (len(self._sequence.tokens) - 1) + 1)

    def _propose_chain(self, budget: int) -> Draft:
        """Return a chain drawn from the head through the request's own filters, with the laws."""
        room = self._room(min(budget, self._options.max_depth))
        if room <= 0:
            return EMPTY_DRAFT
        asked = self.pace.pays(1.0, self._load)
        depth = max(1, self.pace.chain_depth(room, self._load)) if asked else 0
        opened = self._sequence.open(spare=depth) if depth else None
        if opened is None:
            return EMPTY_DRAFT
        states, batch = opened
        tokens: list[int] = []
        laws: list[TokenLaw] = []
        carried = self._executor.project(states)
        while True:
            logits, out = self._executor.forward(batch, carried)
            token, law = self._draw(logits[0], tuple(tokens))
            tokens.append(token)
            if law is not None:
                laws.append(law)
            if len(tokens) == depth:
                break
            batch, carried = self._sequence.step(token, depth=len(tokens) - 1), out[-1:].copy()
        self._sequence.close()
        self._num_levels = depth
        self.spent = self._options.drafting.at(depth)
        return Draft.chain(tokens, laws or None)

    def _draw(self, logits: FloatArray, path: tuple[int, ...]) -> tuple[int, TokenLaw | None]:
        return self._sampler.draw(self._draft_ids.in_order(logits), path, self._draft_ids.ids)


class Eagle3Drafter:
    """Opens :class:`Eagle3Session` objects that share the head's KV blocks and its calibration.

    Raises ``DrafterError`` when the head's cache holds no block.
    """

    def __init__(self, head: Eagle3Head, *, options: Eagle3Options | None = None) -> None:
        self.options = options or Eagle3Options()
        self.head = head
        if head.executor.num_blocks <= 0:
            raise DrafterError(f"head {head.name!r} has no KV blocks; give its cache at least one")
        self._draft_ids = DraftIds(head.executor.draft_to_target)
        # A head is as sure of greedy choices as of draws, but not as often right.
        self._tables = {True: ConfidenceTable(), False: ConfidenceTable()}

    @property
    def name(self) -> str:
        return f"eagle3:{self.head.name}"

    @property
    def capabilities(self) -> DrafterCapabilities:
        return DrafterCapabilities(
            can_branch=self.options.width > 1,
            gives_probabilities=self.options.sampling == "chain",
            is_adaptive=True,
            state_layers=tuple(self.head.executor.state_layers),
        )

    @property
    def num_free_blocks(self) -> int:
        """KV blocks of the head that no request holds."""
        return self.head.pool.num_free

    def start(self, context: DraftContext) -> Eagle3Session:
        """Open a session; it drafts once the states of the prompt have come."""
        table = self._tables[context.rule == "greedy"]
        return Eagle3Session(self.head, self._draft_ids, self.options, table, context)
