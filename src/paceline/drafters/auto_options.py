"""Options of ``auto``."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.config import Settings, check_bool, check_float
from paceline.control.default_costs import HOST_COSTS
from paceline.drafters.eagle3 import Eagle3Options
from paceline.drafters.prediction import PredictionOptions
from paceline.drafters.suffix import SuffixOptions
from paceline.drafters.verify_cost import VerifyCost
from paceline.errors import ConfigError

_PARTS: dict[str, type] = {
    "verify_cost": VerifyCost,
    "prediction": PredictionOptions,
    "suffix": SuffixOptions,
    "eagle3": Eagle3Options,
}


@dataclass(frozen=True, slots=True)
class AutoOptions(Settings):
    """Options of ``auto`` and of the sources it asks.

    ``verify_cost``: the curve r(M) the node count is chosen by. ``confident``: when the least likely
    candidate of prediction and suffix that fits the budget is at least this likely, the head is not asked.
    ``ask_cost``: what asking the cheap sources and telling them the outcome costs, in one-row target
    forwards; where it does not pay of late they rest. ``eagle3``: for the draft head, if there is one; its
    nodes are chosen by ``verify_cost`` above. ``use_head``: whether the target's shipped head is used at all.
    """

    verify_cost: VerifyCost = field(default_factory=VerifyCost)
    confident: float = 0.4
    ask_cost: float = HOST_COSTS["auto"].fixed
    use_head: bool = True
    prediction: PredictionOptions = field(default_factory=PredictionOptions)
    suffix: SuffixOptions = field(default_factory=SuffixOptions)
    eagle3: Eagle3Options = field(default_factory=Eagle3Options)

    def __post_init__(self) -> None:
        check_float("auto: confident", self.confident, 0.0, 1.0)
        check_float("auto: ask_cost", self.ask_cost, 0.0, 10.0)
        check_bool("auto: use_head", self.use_head)
        for name, kind in _PARTS.items():
            if not isinstance(getattr(self, name), kind):
                raise ConfigError(f"auto: {name}={getattr(self, name)!r}: give a {kind.__name__}")
        if self.eagle3.sampling != "tree":
            raise ConfigError(
                f"auto: eagle3.sampling={self.eagle3.sampling!r} does nothing here: auto mixes certain "
                "trees; use the drafter eagle3 for drawn chains"
            )
