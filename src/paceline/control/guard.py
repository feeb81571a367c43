"""The ledger that keeps a request from losing time to its drafter, whichever drafter it is.

Times are in *plain tokens*: the request's share of a step without drafts, which is what one token costs in
plain decoding. A step that commits m tokens and costs x plain tokens loses x - m. The ledger starts with a
small allowance, grows by a fixed share of every committed token and by what drafts gain, and pays for what
they lose. A draft may be as large as the ledger can pay for if every node of it is refused. So over a request

    modelled time ≤ (1 + ``RATE``) · plain time + ``START`` plain tokens

holds whatever the drafter does, and ``CAP`` bounds how much of earlier gains a drafter that has turned bad
can spend. What a request gains beyond that goes into the engine's :class:`Savings`, and a later request whose
own means are spent may owe them up to ``LOAN``; so for all requests together the bound stays as it is. All of
it follows from the cost table, the surcharge that comes with a step's load (see ``draft_clock``), the
request's own history, and what requests before it have gained.
"""

from __future__ import annotations

from paceline.records import BatchLoad
from paceline.theory.cost_table import CostTable

START = 2.0
"""Plain tokens lent to a request. A drafter that is always wrong costs 3 % of a reply of 130 tokens then,
with 1.5 of one of 100. But with 1.5, and costs as measured with SmolLM2, one whole draft that failed held the
next ones back: 2.16 tokens per step on code instead of 2.30, 5.65 instead of 5.91 on rewrite."""
RATE = 0.01
"""Share of the time that may go to trying, a third of what users allow: the rest is for what no table prices.
(0.015 is no better on replayed replies: 1.406 against 1.400 greedily, 1.161 and 1.164 at temperature 1.)"""
CAP = 6.0
"""Plain tokens of earlier gains that may be spent again: a drafter that turns bad is soon stopped."""
LOAN = 6.0
"""Plain tokens that a request may owe to the savings. Without them a first draft that failed left nothing to
try again with: chat 1.21 times as fast as plain decoding instead of 1.32, code 1.51 instead of 1.63."""
MOST_SAVED = 32.0
"""Plain tokens that are saved at most: what drafters that all turn bad can cost beyond each request's own."""
HELD_BACK, CROWD = 1.0, 4
"""Plain tokens of the balance that are not spent among so many requests: what no table prices weighs on all
of them, and replies are short in crowds. (Eight requests of 128 tokens with a drafter that is always wrong
took 1.03 to 1.08 of plain's time, now 1.00; with half a token held back from 16 on 32 took 1.02.)
"""
PATIENCE = 12
"""Drafts refused whole, one after another, behind which a drafter is only tried now and then, by one node.
One that is right a third of the time meets this once in a hundred drafts."""
LONGEST_WAIT = 32
"""Steps between such trials at most; each that fails doubles the wait."""


class Savings:
    """What drafts have gained in requests that needed it no more, in plain tokens; one per engine."""

    __slots__ = ("balance",)

    def __init__(self) -> None:
        self.balance = 0.0

    def put(self, gained: float) -> None:
        """Add what is left over."""
        self.balance = min(MOST_SAVED, self.balance + gained)

    def take(self, wanted: float) -> float:
        """Return as much of ``wanted`` as there is."""
        taken = min(wanted, self.balance)
        self.balance -= taken
        return taken


class Guard:
    """The ledger of one request. ``balance``: what may still be lost, in plain tokens; ``owed``: what it has
    taken from ``savings``, and not given back.

    ``fixed``, ``per_level``: what the drafter's own work costs at least, in one-row forwards; they count
    before it is asked. ``is_priced``: whether the table knows the drafter. ``is_silenced``: whether the last
    :meth:`room` had to refuse every draft.
    """

    __slots__ = (
        "_fixed",
        "_load",
        "_num_refused",
        "_per_level",
        "_prices",
        "_savings",
        "_table",
        "_wait",
        "balance",
        "is_priced",
        "is_silenced",
        "owed",
    )

    def __init__(self, table: CostTable, drafter: str, savings: Savings | None = None) -> None:
        self._table = table
        self._savings = savings or Savings()
        cost = table.cost_of(drafter) if table.knows(drafter) else None
        self.is_priced = cost is not None
        self._fixed = cost.fixed if cost else 0.0
        self._per_level = cost.per_level if cost else 0.0
        self._load: BatchLoad | None = None
        self._prices: list[float] = []  # of 1, 2 … nodes in a step with that load
        self._num_refused = 0  # drafts in a row of which nothing was kept
        self._wait = 0
        self.balance = START
        self.owed = 0.0
        self.is_silenced = False

    @property
    def is_full(self) -> bool:
        """Whether drafts have won as much as may be kept."""
        return self.balance >= CAP

    def share(self, load: BatchLoad) -> float:
        """Return what a plain token costs: the request's share of a step without drafts."""
        return self._table.r(load.num_requests) / load.num_requests

    def cost(self, load: BatchLoad, nodes: int, drafting: float) -> float:
        """Return what a draft of ``nodes`` nodes adds to the step, in plain tokens."""
        return load.surcharge.on(self._added(load, nodes, drafting)) / self.share(load)

    def table_steps(self, load: BatchLoad, nodes: int, drafting: float) -> float:
        """Return what it adds by the table alone, in plain steps of one row, all of their time counted."""
        return self._added(load, nodes, drafting) / (1.0 + self._table.step_cost)

    def _added(self, load: BatchLoad, nodes: int, drafting: float) -> float:
        if not nodes and not drafting:
            return 0.0
        return drafting + self._table.r(load.num_rows + nodes) - self._table.r(load.num_rows)

    def drafting(self, levels: int) -> float:
        """Return what drafting ``levels`` levels costs by the table; 0 for a drafter it does not know."""
        return self._fixed + self._per_level * levels

    def room(self, limit: int, load: BatchLoad) -> int:
        """Return how many of ``limit`` nodes the ledger can pay for if all are refused; to be called once per
        step.
        """
        if self._wait:
            self._wait -= 1
            self.is_silenced = True
            return 0
        # A batch stays as it is for many steps, and each of its requests asks in each of them: 24 µs without
        # these prices where eight requests decide, by which a silent drafter alone cost 4 %.
        if load != self._load or len(self._prices) < limit:
            self._load = load
            self._prices = [self.cost(load, nodes, self.drafting(nodes)) for nodes in range(1, limit + 1)]
        nodes = limit if self._num_refused < PATIENCE else min(limit, 1)
        means = self.balance + self._loan(load) - (HELD_BACK if load.num_requests >= CROWD else 0.0)
        while nodes and self._prices[nodes - 1] > means:
            nodes -= 1
        self.is_silenced = limit > 0 and nodes == 0
        return nodes

    def _loan(self, load: BatchLoad) -> float:
        """Return what the savings have for this request; others of the step may spend their shares."""
        return max(0.0, min(LOAN - self.owed, self._savings.balance)) / load.num_requests

    def settle(
        self, load: BatchLoad, nodes: int, drafting: float, committed: int, is_first: bool = False
    ) -> float:
        """Book one step; return what its draft cost, in plain tokens.

        ``drafting``: of this very step. ``is_first``: whether the step before had none.
        """
        cost = self.cost(load, nodes, drafting)
        if is_first and cost:
            cost += load.surcharge.first / self.share(load)
        if nodes:
            self._num_refused = self._num_refused + 1 if committed == 1 else 0
            if self._num_refused >= PATIENCE:
                self._wait = min(LONGEST_WAIT, 2 ** (self._num_refused - PATIENCE + 1))
        self.earn(committed, (committed - 1) - cost)
        return cost

    def earn(self, committed: int, gain: float = 0.0) -> None:
        """Add the share of ``committed`` tokens and what drafts have gained, in plain tokens."""
        balance = self.balance + RATE * committed + gain
        if balance > CAP:
            self._give_back(balance - CAP)
            balance = CAP
        elif balance < 0.0:
            taken = self._savings.take(-balance)
            self.owed += taken
            balance += taken
        self.balance = balance

    def close(self) -> None:
        """Leave what is left of the gains, not of the first loan, to later requests."""
        self._give_back(max(0.0, self.balance - START))
        self.balance = min(START, self.balance)

    def _give_back(self, plain_tokens: float) -> None:
        self._savings.put(plain_tokens)
        self.owed = max(0.0, self.owed - plain_tokens)
