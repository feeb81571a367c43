"""The drafter that proposes nothing: plain decoding, and the baseline of every comparison."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.drafters.base import DraftContext, DrafterCapabilities
from paceline.records import EMPTY_DRAFT, Draft, StepObservation


class NoneSession:
    """Proposes nothing and learns nothing."""

    __slots__ = ()

    def propose(self, budget: int) -> Draft:
        return EMPTY_DRAFT

    def observe(self, step: StepObservation) -> None:
        pass

    def stop(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class NoneDrafter:
    """Opens sessions that propose nothing."""

    @property
    def name(self) -> str:
        return "none"

    @property
    def capabilities(self) -> DrafterCapabilities:
        return DrafterCapabilities()

    def start(self, context: DraftContext) -> NoneSession:
        return NoneSession()
