"""Training-time test against the float64 reference of serving, and its fused loss against autograd.

Regimes: float32; one and two layers; several sequences in a batch; all chains and half of them kept.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from paceline.models.eagle3_spec import Eagle3Spec
from paceline.train.batches import Batch, batch_order, make_batch
from paceline.train.captured import CapturedSequence, to_bfloat16
from paceline.train.fusing import fused
from paceline.train.head import Eagle3Head
from paceline.train.loss import chunk_loss, soft_cross_entropy
from paceline.train.target import TargetHead
from paceline.train.ttt import Rotary, Unrolled, banded_mask
from support.eagle3_heads import tiny_spec
from support.eagle3_reference import Eagle3Reference

STEPS = 3


def make_head(spec: Eagle3Spec) -> Eagle3Head:
    """A head whose every part does something (a fresh one adds nothing in its layers)."""
    head = Eagle3Head(spec)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for value in head.tensors.values():
            value.copy_(1.0 + torch.randn(value.shape, generator=generator) * 0.2)
            if value.dim() == 2:
                value.sub_(1.0)
    return head


def make_sequences(spec: Eagle3Spec, shapes: list[tuple[int, int]]) -> list[CapturedSequence]:
    rng = np.random.default_rng(5)
    width = (spec.num_states + 1) * spec.target_hidden_size
    return [
        CapturedSequence(
            str(index),
            "test",
            rng.integers(0, spec.vocab_size, length).astype(np.int32),
            to_bfloat16(rng.standard_normal((length, width)).astype(np.float32)),
            start,
        )
        for index, (length, start) in enumerate(shapes)
    ]


def embedding_of(spec: Eagle3Spec) -> torch.Tensor:
    return torch.randn((spec.vocab_size, spec.hidden_size), generator=torch.Generator().manual_seed(1))


def target_head(spec: Eagle3Spec) -> TargetHead:
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn((spec.draft_vocab_size, spec.target_hidden_size), generator=generator)
    return TargetHead(torch.ones(spec.target_hidden_size), weight, spec.norm_eps)


def unroll(spec: Eagle3Spec, head: Eagle3Head, batch: Batch, keep: tuple[float, ...]) -> Unrolled:
    rotary = Rotary(spec.rope.inverse_frequencies, 64)
    unrolled = Unrolled(head.cast(torch.float32), batch, target_head(spec), rotary)
    unrolled.steps(keep, torch.Generator().manual_seed(0))
    return unrolled


def reference_of(spec: Eagle3Spec, head: Eagle3Head) -> Eagle3Reference:
    weights = {name: value.detach().numpy() for name, value in head.tensors.items()}
    ids = np.arange(spec.draft_vocab_size, dtype=np.int32)
    return Eagle3Reference(spec, weights, ids, target_embedding=embedding_of(spec).numpy())


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("keep", [(1.0, 1.0, 1.0), (1.0, 0.5, 1.0)])
def test_every_chain_sees_what_a_served_head_would(num_layers: int, keep: tuple[float, ...]) -> None:
    spec = tiny_spec(num_layers=num_layers, layer_windows=(0,) * num_layers)
    head = make_head(spec)
    sequences = make_sequences(spec, [(9, 3), (6, 1), (12, 7)])
    batch = make_batch(sequences, embedding_of(spec), spec.target_hidden_size)
    reference = reference_of(spec, head)
    checked = 0
    for num_steps in range(1, STEPS + 1):
        unrolled = unroll(spec, head, batch, keep[:num_steps])
        outs = unrolled.out.detach().numpy()
        for row, out in zip(unrolled.rows.tolist(), outs, strict=True):
            sequence = int(batch.chain_sequences[row])
            item = sequences[sequence]
            start = int(batch.chain_positions[row]) - batch.sequence_starts[sequence]
            states = item.states.astype(np.uint32)[: start + 1, : -spec.target_hidden_size] << 16
            tokens = item.tokens.tolist()
            drafted = tokens[start + 2 : start + 1 + num_steps]
            _, expected = reference.rows_of(
                tokens[: start + 2], states.view(np.float32), drafted, range(-1, len(drafted) - 1)
            )
            np.testing.assert_allclose(out, expected[-1], rtol=2e-4, atol=2e-4)
            checked += 1
    assert checked > 20


def test_the_worked_example_of_the_module() -> None:
    """Six tokens, reply from position 3 on: chains at 2 and 3, with two targets and one."""
    spec = tiny_spec()
    (item,) = make_sequences(spec, [(6, 3)])
    batch = make_batch([item], embedding_of(spec), spec.target_hidden_size)
    assert batch.chain_positions.tolist() == [2, 3]
    assert batch.chain_room.tolist() == [2, 1]
    last = item.states[3:5, -spec.target_hidden_size :].astype(np.uint32) << 16
    np.testing.assert_array_equal(batch.target_states.float().numpy(), last.view(np.float32))
    assert torch.equal(batch.embedded, embedding_of(spec)[item.tokens[1:5].astype(np.int64)])


def test_a_shifted_target_is_noticed() -> None:
    """Negative control: with the states of the neighbouring position the outputs are others."""
    spec = tiny_spec()
    head = make_head(spec)
    (item,) = make_sequences(spec, [(9, 3)])
    shifted = CapturedSequence(item.id, item.source, item.tokens, np.roll(item.states, 1, axis=0), 3)
    outs = [
        unroll(spec, head, make_batch([x], embedding_of(spec), spec.target_hidden_size), (1.0,)).out
        for x in (item, shifted)
    ]
    assert float((outs[0] - outs[1]).detach().abs().max()) > 0.1


def test_banded_mask_shows_prefix_and_own_diagonal() -> None:
    mask = banded_mask(torch.tensor([1, 2]), 3, 2, torch.float32)
    seen = (mask == 0).int().tolist()
    assert seen == [[1, 1, 0, 1, 0, 1, 0], [1, 1, 1, 0, 1, 0, 1]]


@pytest.mark.parametrize("trains_weight", [True, False])
def test_fused_loss_is_autograd_s(trains_weight: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn((700, 16), generator=generator, dtype=torch.float32, requires_grad=True)
    weight = torch.randn((48, 16), generator=generator).requires_grad_(trains_weight)
    law = torch.softmax(torch.randn((700, 48), generator=generator), -1) * 0.9
    result = soft_cross_entropy(hidden, weight, law, law.argmax(-1))
    (3.0 * result.loss).backward()
    logits = hidden.detach().requires_grad_() @ weight.detach().T
    plain = hidden.detach().clone().requires_grad_()
    plain_weight = weight.detach().clone().requires_grad_()
    expected = -(law * torch.log_softmax(plain @ plain_weight.T, -1)).sum()
    (3.0 * expected).backward()
    torch.testing.assert_close(result.loss, expected, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(hidden.grad, plain.grad, rtol=1e-4, atol=1e-4)
    if trains_weight:
        torch.testing.assert_close(weight.grad, plain_weight.grad, rtol=1e-4, atol=1e-3)
    assert torch.equal(result.matches, logits.argmax(-1) == law.argmax(-1))


@pytest.mark.fused
def test_fused_steps_are_the_plain_ones() -> None:
    """Where there is no compiler this compares a function with itself, and says so by the log alone."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn((40, 64), generator=generator)
    law = torch.softmax(torch.randn((40, 64), generator=generator), -1)
    for got, expected in zip(fused(chunk_loss)(logits, law), chunk_loss(logits, law), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_batch_order_follows_from_seed_and_epoch() -> None:
    sizes = [3, 5, 2, 9, 4, 4, 1]
    once = list(batch_order(sizes, 8, (1, 0)))
    assert once == list(batch_order(sizes, 8, (1, 0))) != list(batch_order(sizes, 8, (1, 1)))
    assert sorted(index for part in once for index in part) == list(range(len(sizes)))
    assert all(sum(sizes[index] for index in part) >= 8 for part in once[:-1])
