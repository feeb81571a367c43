"""Where not even right drafts pay, nobody is asked; everywhere else somebody may be."""

from __future__ import annotations

from paceline.drafters.auto_batches import BatchLimits
from paceline.drafters.verify_cost import VerifyCost
from paceline.records import ALONE, BatchLoad

# SmolLM2-135M on two Zen 4 cores, as profiled: r(1 … 16), then 24 and 32 by their slope.
MEASURED = (1.0, 1.04, 1.08, 1.23, 1.45, 1.63, 1.82, 1.95, 2.31, 2.34, 2.82, 2.85, 3.54, 3.56, 3.61, 3.64)


def test_a_batch_of_eight_is_full_and_one_of_two_is_not() -> None:
    limits = BatchLimits(VerifyCost(MEASURED), ask_cost=0.1)
    assert limits.can_pay(ALONE, 1)
    assert limits.can_pay(BatchLoad(2, 2), 8)
    assert not limits.can_pay(BatchLoad(8, 8), 8)
    assert not limits.can_pay(BatchLoad(32, 32), 8)


def test_where_rows_are_cheap_a_batch_may_draft() -> None:
    """Weights that are read once for all rows: r grows by a hundredth a row."""
    flat = VerifyCost(tuple(1.0 + 0.01 * rows for rows in range(64)))
    assert BatchLimits(flat, ask_cost=0.1).can_pay(BatchLoad(8, 8), 8)


def test_asking_that_costs_too_much_never_pays() -> None:
    assert not BatchLimits(VerifyCost(MEASURED), ask_cost=5.0).can_pay(ALONE, 4)
