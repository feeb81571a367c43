"""One-pass drafting in training, against the float64 reference fed with the mask as one more token."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from paceline.train.batches import make_batch
from paceline.train.captured import CapturedSequence, to_bfloat16
from paceline.train.fit_config import FitConfig
from paceline.train.optimizers import Optimizers
from paceline.train.parallel import MASKS, ParallelHead, ParallelUnrolled
from paceline.train.target import TargetHead
from paceline.train.ttt import Rotary
from support.eagle3_heads import tiny_spec
from support.eagle3_reference import Eagle3Reference

SPEC = tiny_spec()


def make_head() -> ParallelHead:
    head = ParallelHead(SPEC)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for value in head.tensors.values():
            value.add_(torch.randn(value.shape, generator=generator) * 0.2)
    return head


def test_later_steps_read_the_mask_alone(tmp_path: Path) -> None:
    head = make_head()
    rng = np.random.default_rng(5)
    width = (SPEC.num_states + 1) * SPEC.target_hidden_size
    tokens = rng.integers(0, SPEC.vocab_size, 9).astype(np.int32)
    states = to_bfloat16(rng.standard_normal((9, width)).astype(np.float32))
    embedding = torch.randn((SPEC.vocab_size, SPEC.hidden_size), generator=torch.Generator().manual_seed(1))
    batch = make_batch([CapturedSequence("0", "test", tokens, states, 4)], embedding, SPEC.target_hidden_size)
    weight = torch.randn((SPEC.draft_vocab_size, SPEC.target_hidden_size))
    target = TargetHead(torch.ones(SPEC.target_hidden_size), weight, SPEC.norm_eps)
    unrolled = ParallelUnrolled(
        head.cast(torch.float32), batch, target, Rotary(SPEC.rope.inverse_frequencies, 32)
    )
    results = unrolled.steps((1.0, 1.0, 1.0), torch.Generator())
    torch.stack([result.loss for result in results]).sum().backward()  # type: ignore[no-untyped-call]
    assert all(head.tensors[name].grad is not None for name in MASKS)

    weights = {name: value.detach().numpy() for name, value in head.tensors.items() if name not in MASKS}
    mask_embedding, mask_state = (head.tensors[name].detach().numpy() for name in MASKS)
    reference = Eagle3Reference(
        SPEC,
        weights,
        np.arange(SPEC.draft_vocab_size, dtype=np.int32),
        target_embedding=np.vstack([embedding.numpy(), mask_embedding]),
    )
    values = (states[:, : -SPEC.target_hidden_size].astype(np.uint32) << 16).view(np.float32)
    for row, out in zip(unrolled.rows.tolist(), unrolled.out.detach().numpy(), strict=True):
        start = int(batch.chain_positions[row])
        ids = [*tokens[1 : start + 2].tolist(), SPEC.vocab_size, SPEC.vocab_size]
        g = np.vstack([reference.project(values[: start + 1]), mask_state, mask_state])
        _, expected = reference.chain(ids, g)
        np.testing.assert_allclose(out, expected[-1], rtol=2e-4, atol=2e-4)


def test_masks_are_trained() -> None:
    """Vectors go to AdamW, whatever they are called."""
    head = make_head()
    before = head.tensors[MASKS[1]].detach().clone()
    optimizers = Optimizers(head, FitConfig(num_steps=1))
    for value in head.tensors.values():
        value.grad = torch.ones_like(value)
    optimizers.step(0)
    assert not torch.equal(before, head.tensors[MASKS[1]].detach())
