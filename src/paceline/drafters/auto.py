"""The drafter that decides for itself: cheap sources first, mixed in one tree, silent where it does not pay.

Each step it asks the caller's prediction (if there is one) and the suffix tree. A draft head (EAGLE-3), where
there is one for the target, is asked when what it has promised of late beats what the cheap sources promise
now, its own cost counted, unless copies fill the budget with likely tokens already; while it is not asked its
cache waits and catches up later in one pass. The candidates go into one tree; the verify cost curve, the rows
the forward has already and the estimated path probabilities say how many of the best nodes give the most
expected tokens per second, zero included. The estimates learn from every committed token, verified or not.
Asking costs time too: sources that have not paid of late rest and are tried now and then. A decision depends
on the request's tokens, the shared past replies, the load of the batch with what the clock adds, the cost
table, and what the ledger allows (docs/controller.md).
"""

from __future__ import annotations

import logging

from paceline.drafters.auto_batches import BatchLimits
from paceline.drafters.auto_options import AutoOptions
from paceline.drafters.auto_session import WHOLE, AutoSession
from paceline.drafters.base import DraftContext, DrafterCapabilities
from paceline.drafters.eagle3 import Eagle3Drafter
from paceline.drafters.prediction import PredictionDrafter
from paceline.drafters.suffix import SuffixDrafter
from paceline.records import BatchLoad

__all__ = ["AutoDrafter", "AutoOptions", "AutoSession"]

logger = logging.getLogger("paceline.drafters")


class AutoDrafter:
    """Opens :class:`AutoSession` objects over shared past replies and one head.

    ``head``: the draft head of the target, if it has one. When it fails, a warning says so once, and it is
    asked no more.
    """

    def __init__(self, options: AutoOptions | None = None, head: Eagle3Drafter | None = None) -> None:
        self.options = options or AutoOptions()
        self._prediction = PredictionDrafter(self.options.prediction)
        self._suffix = SuffixDrafter(self.options.suffix)
        self._batches = BatchLimits(self.options.verify_cost, self.options.ask_cost)
        self.head = head

    @property
    def name(self) -> str:
        return "auto"

    @property
    def capabilities(self) -> DrafterCapabilities:
        layers = () if self.head is None else self.head.capabilities.state_layers
        return DrafterCapabilities(
            can_branch=True,
            state_layers=layers,
            is_adaptive=True,
        )

    def start(self, context: DraftContext) -> AutoSession:
        """Open the sources' sessions."""
        prediction = self._prediction.start(context) if context.prediction else None
        crowd = context.num_others + 1
        # In a full batch a head would be let go before it is asked, and its states be computed for nothing.
        has_use = crowd == 1 or self._batches.can_pay(BatchLoad(crowd, crowd), WHOLE)
        head = self.head.start(context) if self.head is not None and has_use else None
        return AutoSession(
            len(context.prompt_token_ids),
            self.options,
            self._batches,
            prediction,
            self._suffix.start(context),
            head,
            self._head_failed,
            context.explain,
        )

    def _head_failed(self, error: Exception) -> None:
        if self.head is not None:
            logger.warning(
                "the draft head %s failed; auto goes on with its other sources",
                self.head.name,
                exc_info=error,
            )
        self.head = None
