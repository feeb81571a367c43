"""Give a new request its drafter's session, its ledger, and what the drafter wants to see."""

from __future__ import annotations

from paceline.config import EngineConfig
from paceline.control.guard import Guard, Savings
from paceline.drafters.base import DraftContext, Drafter
from paceline.engine.draft import Pacing
from paceline.engine.patience import open_session
from paceline.engine.request import Request, logger
from paceline.theory.cost_table import CostTable


def start_drafting(
    request: Request,
    drafter: Drafter,
    config: EngineConfig,
    costs: CostTable,
    savings: Savings | None,
    num_others: int = 0,
) -> None:
    """Open a session of ``drafter``, unless the request may not draft; one that fails costs the drafts.

    ``savings``: of the engine's guarded requests, ``None`` for one that is not guarded. ``num_others``:
    requests that are there already.
    """
    if request.draft_limit == 0 or drafter.name == "none":
        return
    prediction = request.params.prediction
    context = DraftContext(
        request.request_id,
        tuple(request.tokens),
        request.sampler,
        prediction if isinstance(prediction, tuple) else (),
        request.sampler.rule,
        config.record_decisions,
        min(num_others, config.max_num_requests - 1),
    )
    request.pacing = _pacing(drafter, config, costs, savings)
    request.num_top_tokens = drafter.capabilities.num_top_tokens
    request.state_layers = drafter.capabilities.state_layers
    try:
        session = open_session(drafter, context, config.draft_timeout)
        request.pacing.heed_states(session)
        request.session = session
    except Exception:
        logger.warning(
            "drafter %s did not start; request %s goes on without drafts",
            drafter.name,
            request.request_id,
            exc_info=True,
        )


def _pacing(drafter: Drafter, config: EngineConfig, costs: CostTable, savings: Savings | None) -> Pacing:
    """Return how the drafting of one request is bounded and recorded."""
    return Pacing(
        Guard(costs, drafter.name, savings),
        savings is not None,
        drafter.capabilities.is_adaptive,
        [] if config.record_decisions else None,
        wants_states=bool(drafter.capabilities.state_layers),
        wants_top=drafter.capabilities.num_top_tokens > 0,
    )
