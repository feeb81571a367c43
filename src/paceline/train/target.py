"""The target's own head, which turns captured last states into the soft targets of training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class TargetHead:
    """``norm`` float32 [Ht]: the target's final norm. ``weight`` [Vd, Ht]: its head's rows of the draft
    vocabulary, in the dtype to compute in. ``softcap``: 0 for none."""

    norm: Tensor
    weight: Tensor
    eps: float
    softcap: float = 0.0

    @torch.no_grad()
    def laws(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return the law over the draft vocabulary [N, Vd] (sums to one) and its likeliest token int64 [N].

        ``states`` bf16 [N, Ht]: outputs of the last layer.
        """
        laws = torch.empty((len(states), len(self.weight)), dtype=self.weight.dtype)
        best = torch.empty(len(states), dtype=torch.int64)
        for start in range(0, len(states), 512):
            rows = slice(start, start + 512)
            x = functional.rms_norm(states[rows].float(), self.norm.shape, self.norm, self.eps)
            logits = functional.linear(x.to(self.weight.dtype), self.weight).float()
            if self.softcap:
                logits = self.softcap * torch.tanh(logits / self.softcap)
            best[rows] = logits.argmax(-1)
            laws[rows] = logits.softmax(-1).to(laws.dtype)
        return laws, best
