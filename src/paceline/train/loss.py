"""The soft-target cross entropy of a draft step, fused with the head's matrix and its gradient.

For N rows and Vd draft tokens neither the logits nor their gradient is kept: both passes go over the rows
in chunks that stay in the processor's cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paceline.train.fusing import fused

CHUNK_ROWS = 512


@dataclass(frozen=True, slots=True)
class StepLoss:
    """``loss``: sum over rows of -Σ p log q (scalar float32, differentiable). ``matches`` bool [N]: whether
    the draft's most likely token is the target's."""

    loss: Tensor
    matches: Tensor


def chunk_loss(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (Σ -p log q, its gradient by the logits in their dtype, the argmax) of [N, Vd] rows."""
    values, p = logits.float(), target.float()
    shifted = values - values.amax(-1, keepdim=True)
    exponentials = shifted.exp()
    total = exponentials.sum(-1, keepdim=True)
    loss = -(p * (shifted - total.log())).sum()
    gradient = exponentials * (p.sum(-1, keepdim=True) / total) - p
    return loss, gradient.to(logits.dtype), values.argmax(-1)


class _SoftCrossEntropy(torch.autograd.Function):
    """loss = -Σ_rows Σ_v p log softmax(h W^T); see module docstring."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, best: Tensor, train_weight: bool
    ) -> tuple[Tensor, Tensor]:
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if train_weight else None
        total = torch.zeros(())
        matches = torch.empty(len(hidden), dtype=torch.bool)
        for start in range(0, len(hidden), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            loss, gradient, likeliest = fused(chunk_loss)(hidden[rows] @ weight.T, target[rows])
            total += loss
            matches[rows] = likeliest == best[rows]
            grad_hidden[rows] = gradient @ weight
            if grad_weight is not None:
                grad_weight += gradient.T @ hidden[rows]
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(matches)
        return total, matches

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor, _: Tensor) -> Any:
        grad_hidden, grad_weight = ctx.saved_tensors
        into_weight = None if grad_weight is None else (grad_weight * grad_total)
        return grad_hidden * grad_total.to(grad_hidden.dtype), into_weight, None, None, None


def soft_cross_entropy(hidden: Tensor, weight: Tensor, target: Tensor, best: Tensor) -> StepLoss:
    """Return the loss of one draft step.

    ``hidden`` [N, H]: normed outputs. ``weight`` [Vd, H]: the head's matrix. ``target`` [N, Vd]: the target's
    law over the draft vocabulary (rows may sum to less than one). ``best`` int64 [N]: the target's most
    likely draft token. Gradients reach ``hidden``, and ``weight`` when it requires them.
    """
    loss, matches = _SoftCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, weight, target, best, weight.requires_grad
    )
    return StepLoss(loss, matches)
