"""A drafter that follows a script, for tests: right drafts, wrong drafts, trees, failures, on demand.

The script is called with the committed tokens (prompt first), the budget and the request's sampler:

    ScriptedDrafter(lambda known, budget, sampler: Draft.chain([7, 7, 7][:budget]))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from paceline.drafters.base import DraftContext, DrafterCapabilities, TokenSampler
from paceline.records import Draft, StepObservation

Script = Callable[[tuple[int, ...], int, TokenSampler], Draft]


class ScriptedSession:
    """One run of the script. ``steps``: all observations, in order. ``num_stops``: calls of stop."""

    def __init__(self, script: Script, context: DraftContext) -> None:
        self._script = script
        self._sampler = context.sampler
        self.known = list(context.prompt_token_ids)
        self.steps: list[StepObservation] = []
        self.num_stops = 0

    def propose(self, budget: int) -> Draft:
        return self._script(tuple(self.known), budget, self._sampler)

    def observe(self, step: StepObservation) -> None:
        self.known.extend(step.committed)
        self.steps.append(step)

    def stop(self) -> None:
        self.num_stops += 1


@dataclass(slots=True)
class ScriptedDrafter:
    """Opens sessions that follow ``script``; ``sessions`` keeps them by request id for inspection."""

    script: Script
    capabilities: DrafterCapabilities = field(default_factory=lambda: DrafterCapabilities(can_branch=True))
    name: str = "scripted"
    sessions: dict[str, ScriptedSession] = field(default_factory=dict)

    def start(self, context: DraftContext) -> ScriptedSession:
        session = ScriptedSession(self.script, context)
        self.sessions[context.request_id] = session
        return session
