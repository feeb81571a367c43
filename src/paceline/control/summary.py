"""What the drafts of a request have cost and brought, summed up from its step records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.control.decisions import StepRecord


@dataclass(frozen=True, slots=True)
class DraftSummary:
    """Sums over verify steps; costs and gains in plain tokens, by the cost table.

    ``num_drafts``: steps with at least one drafted token. ``draft_cost``: what all drafts added, asking for
    those that were not made included. ``lost``: what steps lost in which a draft brought less than it cost.
    ``reasons``: steps by why they drafted as much as they did.
    """

    num_steps: int
    num_drafts: int
    num_drafted: int
    num_accepted: int
    num_committed: int
    draft_cost: float
    lost: float
    reasons: tuple[tuple[str, int], ...]

    @property
    def acceptance_rate(self) -> float:
        """Accepted ÷ drafted tokens; 0 without drafts."""
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    @property
    def break_even_rate(self) -> float:
        """Acceptance rate at which these very drafts would have cost what they brought; 0 without drafts.

        Above 1 where no acceptance would have paid.
        """
        return self.draft_cost / self.num_drafted if self.num_drafted else 0.0

    @property
    def gain(self) -> float:
        """Plain tokens gained over plain decoding; below 0: lost."""
        return self.num_committed - self.num_steps - self.draft_cost

    @property
    def modelled_speedup(self) -> float:
        """Time of plain decoding ÷ time of these steps, by the cost table; 1 without steps."""
        spent = self.num_steps + self.draft_cost
        return self.num_committed / spent if spent else 1.0


def summarise(records: Sequence[StepRecord]) -> DraftSummary:
    """Return the sums over ``records``."""
    return DraftSummary(
        num_steps=len(records),
        num_drafts=sum(record.num_drafted > 0 for record in records),
        num_drafted=sum(record.num_drafted for record in records),
        num_accepted=sum(record.num_accepted for record in records),
        num_committed=sum(record.num_committed for record in records),
        draft_cost=sum(record.draft_cost for record in records),
        lost=sum(-record.gain for record in records if record.gain < 0),
        reasons=tuple(Counter(record.reason for record in records).most_common()),
    )
