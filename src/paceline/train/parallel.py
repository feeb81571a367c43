"""One-pass drafting: a head that names several tokens ahead in a single pass (P-EAGLE, arXiv 2602.01469).

Draft steps 2, 3, … read a learnt mask state and a learnt mask embedding instead of the fed-back state and the
drafted token, so they need not wait for each other: a draft of K tokens is one pass over K rows instead of K
passes over one. The price is that a later step does not know which tokens were drafted before it. Compared
with the serial head in docs/training.md.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paceline.models.eagle3_spec import Eagle3Spec
from paceline.train.head import Eagle3Head
from paceline.train.ttt import Unrolled

MASKS = ("mask_embd.weight", "mask_state.weight")
"""The learnt inputs of later steps, float32 [H] each."""


class ParallelHead(Eagle3Head):
    """An :class:`Eagle3Head` with the tensors of ``MASKS`` besides."""

    def __init__(self, spec: Eagle3Spec, seed: int = 0) -> None:
        super().__init__(spec, seed)
        generator = torch.Generator().manual_seed(seed + 1)
        for name in MASKS:
            self.add_tensor(name, nn.Parameter(torch.randn(spec.hidden_size, generator=generator)))


class ParallelUnrolled(Unrolled):
    """As :class:`~paceline.train.ttt.Unrolled`, with masks for the inputs of later steps."""

    def _later_inputs(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        dtype, shape = self.batch.embedded.dtype, (len(pairs), self.weights.spec.hidden_size)
        embedded, state = (self.weights.tensors[name].to(dtype).expand(shape) for name in MASKS)
        return embedded, state
