"""What a draft model learns: the target's law at every reply token, over the whole vocabulary.

The cross entropy with the target's law, which is KL(target ‖ draft) plus the target's own entropy, so both
have the same gradient. Laws are made chunk by chunk: those of a batch over 262,144 tokens would take 1 GB.

For speed the loss may be restricted to the most frequent tokens. The law of the draft model is over all of
them when it serves, so the others must not grow unseen: a sample of them takes part, each with the weight of
those it stands for, which estimates the sum over all (Bengio and Senécal 2008). The target's law is that over
the frequent ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from paceline.train.loss import StepLoss, soft_cross_entropy
from paceline.train.target import TargetHead

SAMPLED = 1024
"""Other tokens in a restricted loss, drawn anew for every batch."""
_CHUNK_VALUES = 1 << 24
_CHUNK_ROWS = (16, 512)


class DraftTarget:
    """``embedding`` [V, H]: of the draft model, its output matrix too. ``head``: the target's, over ``ids``.
    ``ids`` int64 [N], rising: the tokens the loss is over, all V or the most frequent ones."""

    def __init__(self, head: TargetHead, embedding: Tensor, ids: Tensor) -> None:
        self.head, self.embedding = head, embedding
        is_other = torch.ones(len(embedding), dtype=torch.bool)
        is_other[ids] = False
        self.others = torch.nonzero(is_other).flatten()
        self.rows = embedding[ids] if len(self.others) else embedding
        least, most = _CHUNK_ROWS
        self.chunk = max(least, min(most, _CHUNK_VALUES // len(self.rows)))

    def loss(self, hidden: Tensor, states: Tensor, generator: torch.Generator) -> StepLoss:
        """Return the loss of rows ``hidden`` [C, H], normed outputs, against the target's ``states`` [C, Ht].

        ``generator`` draws the sample. A prediction matches where the likeliest of the tokens in the loss is
        the target's likeliest of ``ids``.
        """
        weight = self.rows
        if len(self.others):
            hidden, weight = self._with_sample(hidden, generator)
        total, matches = torch.zeros(()), []
        # split, not slices: the gradient of a slice has the size of the whole.
        for part, rows in zip(torch.split(hidden, self.chunk), torch.split(states, self.chunk), strict=True):
            laws, best = self.head.laws(rows)
            if len(self.others):
                laws = torch.nn.functional.pad(laws, (0, len(weight) - len(self.rows)))
            piece = soft_cross_entropy(part, weight, laws, best)
            total = total + piece.loss
            matches.append(piece.matches)
        return StepLoss(total, torch.cat(matches))

    def _with_sample(self, hidden: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return rows and matrix with a column more: log(tokens a sampled one stands for)."""
        drawn = self.others[torch.randint(len(self.others), (SAMPLED,), generator=generator)]
        share = torch.full((SAMPLED, 1), math.log(len(self.others) / SAMPLED), dtype=self.rows.dtype)
        own = torch.cat((self.rows, self.rows.new_zeros(len(self.rows), 1)), 1)
        sampled = torch.cat((self.embedding[drawn], share), 1)
        return torch.cat((hidden, hidden.new_ones(len(hidden), 1)), 1), torch.cat((own, sampled))
