"""What drafts cost here of late, by the clock, beside what the cost table says.

A profile is taken once and machines have moods: arithmetic slows down when a neighbour works, weights leave a
shared cache sooner when more lies between two forwards. The clock hears steps of requests that run alone and
fits, from drafts behind drafts,

    time of a step = plain step · (1 + asking + factor · cost)

where ``cost`` is the draft's by the table, in plain steps, and 0 where nobody was asked. A plain step is one
behind a plain step. A draft behind plain steps takes longer than that fit, and so does the plain step behind
it: that is ``first``. It is kept apart. Whoever weighed a draft by it would never begin, although the next
ones cost less: chat then took 0.95 of plain's time where it takes 0.7.
"""

from __future__ import annotations

from dataclasses import replace

from paceline.records import NO_SURCHARGE, Surcharge

_KEEP = 0.98
"""Kept of what was heard with each further draft: moods change within seconds."""
_FADE = 0.995
"""The same with each plain step, or drafts that were once too dear would never be tried again."""
_PRIOR = 4.0  # drafts that the table's word is worth
_PRIOR_COST = 0.5  # of such a draft
_KEEP_PLAIN, _AGING = 0.85, 8
"""Kept of the mean of plain steps with each further one; so many drafts in between age it as one does."""
_FIRST_PLAIN = 3  # plain steps of which the shortest counts, before there is a mean
_KEEP_FIRST = 0.9
_OUTLIER = 2.0  # times the expected time: somebody else's time slice, not a cost
_MOST_ASKING, _LEAST_FACTOR, _MOST_FACTOR = 2.0, 0.4, 4.0
"""Arithmetic may become dear (4), and single rows: with weights from a slow memory a draft that the profile
priced at 1.3 plain steps took 0.6 to 0.9 (0.4)."""
_STALE = 48  # drafts in a row behind which a plain step is wanted
_FIRST_STALE = 4  # the same for each plain step heard so far, while they are few


class DraftClock:
    """Hears the time of steps; one per engine.

    ``surcharge``: what to add to the table's costs, rounded, so that decisions change seldom.
    ``in_batches``: the same for several requests at once, of which nothing is heard: never less than the
    table says. (In a mood in which a lone request drafts cheaply, thirty-two drafted three times as much as
    before and took 1.06 of plain's time.)
    """

    def __init__(self) -> None:
        self.surcharge = self.in_batches = NO_SURCHARGE
        self._plain = 0.0  # seconds
        self._num_plain = 0
        self._since_plain = 0
        self._last: float | None = None  # cost of the step before, None when it is not known
        self._begun = self._behind = 0.0  # what a first draft and the plain step behind the last one add
        # Sums over drafts, forgotten by and by: 1, cost, cost², excess, cost · excess.
        self._ones = self._costs = self._squares = self._excess = self._product = 0.0

    @property
    def wants_plain(self) -> bool:
        """Whether two steps without a draft would tell what it no longer knows: the time of a plain step."""
        return self._since_plain >= min(_STALE, _FIRST_STALE * self._num_plain)

    def skip(self) -> None:
        """Take note of a step that cannot be compared: of several requests, or with tokens of a prompt."""
        self._last = None

    def hear(self, seconds: float, cost: float) -> None:
        """Learn from a step of one request. ``cost``: of its draft by the table alone, in plain steps."""
        last, self._last = self._last, cost
        if last is None:
            return
        if cost > 0:
            self._since_plain += 1
        if cost == last == 0:
            self._hear_plain(seconds)
            self._forget(_FADE)
        elif not self._plain:
            return
        elif cost > 0 and last > 0:
            self._forget(_KEEP)
            self._add(seconds, cost)
        elif cost > 0:
            self._begun += (1.0 - _KEEP_FIRST) * (self._excess_of(seconds, cost) - self._begun)
        else:
            self._behind += (1.0 - _KEEP_FIRST) * (self._excess_of(seconds, 0.0) - self._behind)
        self._set(self._fitted())

    def _set(self, surcharge: Surcharge) -> None:
        if surcharge != self.surcharge:
            self.surcharge = surcharge
            self.in_batches = replace(surcharge, factor=max(1.0, surcharge.factor))

    def _excess_of(self, seconds: float, cost: float) -> float:
        """Return what a step takes longer than the fit says, in plain steps."""
        expected = 1.0 + self.surcharge.on(cost)
        return min(seconds / self._plain, _OUTLIER * expected) - expected

    def _hear_plain(self, seconds: float) -> None:
        since, self._since_plain = self._since_plain, 0
        self._num_plain += 1
        if self._num_plain <= _FIRST_PLAIN:  # the very first may have stood still
            self._plain = min(seconds, self._plain or seconds)
            return
        seconds = min(seconds, _OUTLIER * self._plain)
        self._plain += (1.0 - _KEEP_PLAIN ** (1 + since / _AGING)) * (seconds - self._plain)

    def _forget(self, keep: float) -> None:
        self._ones *= keep
        self._costs *= keep
        self._squares *= keep
        self._excess *= keep
        self._product *= keep

    def _add(self, seconds: float, cost: float) -> None:
        expected = 1.0 + max(cost, self.surcharge.on(cost))
        excess = min(seconds / self._plain, _OUTLIER * expected) - 1.0
        self._ones += 1.0
        self._costs += cost
        self._squares += cost * cost
        self._excess += excess
        self._product += cost * excess

    def _fitted(self) -> Surcharge:
        """Return the least squares fit, drawn to the table (asking 0, factor 1)."""
        ones, prior = self._ones + _PRIOR, _PRIOR * _PRIOR_COST**2
        squares, product = self._squares + prior, self._product + prior
        determinant = ones * squares - self._costs**2
        asking = (squares * self._excess - self._costs * product) / determinant
        asking = min(_MOST_ASKING, max(0.0, asking))
        factor = (product - asking * self._costs) / squares
        if not _LEAST_FACTOR <= factor <= _MOST_FACTOR:
            factor = min(_MOST_FACTOR, max(_LEAST_FACTOR, factor))
            asking = min(_MOST_ASKING, max(0.0, (self._excess - factor * self._costs) / ones))
        first = min(_MOST_ASKING, max(0.0, self._begun + self._behind))
        return Surcharge(round(20 * asking) / 20, round(10 * factor) / 10, round(20 * first) / 20)
