"""The optimisers of a fit: Muon or AdamW for the matrices, AdamW for everything else."""

from __future__ import annotations

from typing import Any

import torch

from paceline.train.fit_config import FitConfig
from paceline.train.layers import NamedTensors

_BETAS = (0.9, 0.95)


class Optimizers:
    """Clips, steps and saves all of them together."""

    def __init__(self, head: NamedTensors, config: FitConfig) -> None:
        self.config = config
        tensors = head.tensors
        output = tensors.pop("output.weight", None)
        if output is not None:
            output.requires_grad_(config.head_rate > 0)
        matrices = [value for value in tensors.values() if value.dim() == 2]
        vectors = [value for value in tensors.values() if value.dim() == 1]
        groups = [{"params": vectors, "share": 1.0, "weight_decay": 0.0}]
        if output is not None and config.head_rate > 0:
            groups.append({"params": [output], "share": config.head_rate, "weight_decay": 0.0})
        self._all: list[torch.optim.Optimizer] = []
        if config.optimizer == "adamw":
            groups.append({"params": matrices, "share": 1.0, "weight_decay": config.weight_decay})
        else:
            self._all.append(
                torch.optim.Muon(
                    [{"params": matrices, "share": 1.0}],
                    lr=config.learning_rate,
                    weight_decay=config.weight_decay,
                    adjust_lr_fn="match_rms_adamw",
                )
            )
        self._all.append(torch.optim.AdamW(groups, lr=config.learning_rate, betas=_BETAS, fused=True))
        self._trained = [
            p for optimizer in self._all for group in optimizer.param_groups for p in group["params"]
        ]

    def zero_grad(self) -> None:
        for optimizer in self._all:
            optimizer.zero_grad(set_to_none=True)

    def step(self, step: int) -> None:
        """Clip the gradient and step at the rate of ``step``."""
        torch.nn.utils.clip_grad_norm_(self._trained, self.config.clip)
        rate = self.config.rate_at(step)
        for optimizer in self._all:
            for group in optimizer.param_groups:
                group["lr"] = rate * group["share"]
            optimizer.step()

    def state_dict(self) -> list[Any]:
        return [optimizer.state_dict() for optimizer in self._all]

    def load_state_dict(self, states: list[Any]) -> None:
        for optimizer, state in zip(self._all, states, strict=True):
            optimizer.load_state_dict(state)
