"""How a head is fitted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from paceline.config import Settings, check_choice, check_float, check_int
from paceline.errors import ConfigError

OptimizerName = Literal["muon", "adamw"]
DTypeName = Literal["bfloat16", "float32"]


@dataclass(frozen=True, slots=True)
class FitConfig(Settings):
    """``num_steps``: optimiser steps. ``tokens_per_step``: supervised tokens of one. ``learning_rate``: peak;
    warm-up over ``warmup`` of the steps, then a cosine to a twentieth. ``optimizer``: of the matrices
    (``muon``: orthogonalised momentum, Jordan et al. 2024); vectors and the output head always use AdamW,
    the head with ``head_rate`` times the rate (0: it stays the target's). ``keep[m]``: share of the chains
    that draft step m + 1 trains on; its length is the number of training-time-test steps. ``fewer_until``:
    up to this share of the run only the first two steps are trained. ``step_decay``: weight of step m is
    ``step_decay ** m`` (0.8 in the paper). ``clip``: of the gradient's norm. ``evaluate_every``,
    ``checkpoint_every``: in steps. ``seed``: order of the data, start values, which chains are kept.
    """

    num_steps: int
    tokens_per_step: int = 2048
    learning_rate: float = 2e-2
    warmup: float = 0.03
    optimizer: OptimizerName = "muon"
    head_rate: float = 0.05
    weight_decay: float = 0.01
    keep: tuple[float, ...] = (1.0, 1.0, 0.5, 0.5)
    fewer_until: float = 0.3
    step_decay: float = 0.8
    clip: float = 0.5
    dtype: DTypeName = "bfloat16"
    evaluate_every: int = 100
    checkpoint_every: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        check_int("num_steps", self.num_steps, 1)
        check_int("tokens_per_step", self.tokens_per_step, 1)
        for name in ("learning_rate", "clip"):
            check_float(name, getattr(self, name), 1e-9, 100.0)
        for name in ("warmup", "fewer_until", "step_decay", "head_rate", "weight_decay"):
            check_float(name, getattr(self, name), 0.0, 1.0)
        check_choice("optimizer", self.optimizer, ("muon", "adamw"))
        check_choice("dtype", self.dtype, ("bfloat16", "float32"))
        check_int("evaluate_every", self.evaluate_every, 1)
        check_int("checkpoint_every", self.checkpoint_every, 1)
        check_int("seed", self.seed, 0)
        keep = self.keep if isinstance(self.keep, tuple) else ()
        are_shares = all(isinstance(share, int | float) and 0 < share <= 1 for share in keep)
        if not keep or not are_shares or keep[0] != 1:
            raise ConfigError(
                f"keep={self.keep!r}: give shares above 0 up to 1, the first one 1, e.g. 1,1,0.5 (one: 1,)"
            )

    @property
    def torch_dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.dtype == "bfloat16" else torch.float32

    def keep_at(self, step: int) -> tuple[float, ...]:
        """Return the shares in force at a step."""
        return self.keep[:2] if step < self.fewer_until * self.num_steps else self.keep

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step."""
        warmup = max(1, round(self.warmup * self.num_steps))
        if step < warmup:
            return self.learning_rate * (step + 1) / warmup
        share = (step - warmup) / max(1, self.num_steps - warmup)
        return self.learning_rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))
