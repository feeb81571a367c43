"""Costs to plan by where nothing was measured: on the safe side for every model that we know."""

from __future__ import annotations

from paceline.theory.cost_table import CostTable, DraftCost

# r(1 … 8) of the CPU executor with SmolLM2-135M and two threads (AVX-512 VNNI), logits for every row, rounded
# up: drafting that pays by this curve pays there, and the more so on larger models.
CONSERVATIVE_RATIOS = (1.0, 1.05, 1.12, 1.28, 1.4, 1.57, 1.8, 1.9)

# One-row forwards of the same model (2.7 ms). A head's first pass also catches up with what was committed,
# and it includes the Python around a draft; the copying drafters are Python (docs/drafters.md).
CATCH_UP_COST = 0.15
LEVEL_COST = 0.02
HOST_COSTS = {
    "ngram": DraftCost(0.002),
    "suffix": DraftCost(0.006),
    "recycle": DraftCost(0.009),
    "prediction": DraftCost(0.004),
    "auto": DraftCost(0.016),
}

CONSERVATIVE_COSTS = CostTable(
    verify=tuple(enumerate(CONSERVATIVE_RATIOS, start=1)),
    row_seconds=0.0027,
    draft_costs={**HOST_COSTS, "eagle3": DraftCost(CATCH_UP_COST, LEVEL_COST)},
)
