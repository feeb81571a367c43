"""A small draft model in PyTorch: Llama's form, the target's width, vocabulary and embedding, few layers.

The embedding is the target's and is not trained: it is most of such a model's weights, the draft model's law
stays within reach of tokens that no reply holds, and a step costs two thirds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from paceline.models.rope import plain_frequencies
from paceline.models.spec import ModelSpec, RopeSpec
from paceline.train.batches import Batch
from paceline.train.captured import CapturedSequence
from paceline.train.draft_loss import DraftTarget
from paceline.train.greedy import attend
from paceline.train.layers import LayerWeights, NamedTensors, layer_shapes
from paceline.train.ttt import Rotary, StepResult

DEFAULT_BASE = 10000.0


@dataclass(frozen=True, slots=True)
class DraftModelSpec:
    """Dimensions of a draft model; it rotates halves, at plain frequencies of ``rope_base``."""

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    max_context: int
    norm_eps: float
    rope_base: float

    @property
    def target_hidden_size(self) -> int:
        return self.hidden_size

    @property
    def rope(self) -> RopeSpec:
        return RopeSpec(tuple(plain_frequencies(self.rope_base, self.head_dim).tolist()), "half_split")


def draft_model_spec(target: ModelSpec, num_layers: int) -> DraftModelSpec:
    """Return a draft model of the target's own dimensions, with ``num_layers`` of its layers."""
    return DraftModelSpec(
        name=f"{target.name} draft",
        num_layers=num_layers,
        hidden_size=target.hidden_size,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        ffn_size=target.ffn_size,
        vocab_size=target.vocab_size,
        max_context=target.max_context,
        norm_eps=target.norm_eps,
        rope_base=_base_of(target.ropes[target.layer_ropes[0]]),
    )


def _base_of(rope: RopeSpec) -> float:
    """Return the base that a rope started from: scaling leaves the ratio of its two fastest pairs alone."""
    if len(rope.inverse_frequencies) < 2:
        return DEFAULT_BASE
    ratio = rope.inverse_frequencies[0] / rope.inverse_frequencies[1]
    # GGUF keeps bases in float32.
    return float(np.float32(f"{ratio ** len(rope.inverse_frequencies):.6g}"))


def draft_model_shapes(spec: DraftModelSpec) -> dict[str, tuple[int, ...]]:
    """Return the shape of each trained tensor by its GGUF name; the embedding is not among them."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(spec.num_layers):
        shapes |= layer_shapes(spec, layer, spec.hidden_size)
    return {**shapes, "output_norm.weight": (spec.hidden_size,)}


class DraftModelTensors(NamedTensors):
    """The trained tensors; zeros until they are loaded (see ``draft_start``)."""

    spec: DraftModelSpec

    def __init__(self, spec: DraftModelSpec) -> None:
        super().__init__(spec, {name: torch.zeros(shape) for name, shape in draft_model_shapes(spec).items()})


def run_layers(
    weights: LayerWeights, embedded: Tensor, positions: Tensor, counts: Sequence[int], rotary: Rotary
) -> Tensor:
    """Return the normed outputs [T, H] of packed sequences.

    ``embedded`` [T, H] and ``positions`` int64 [T] of their tokens; ``counts``: tokens of each sequence.
    """
    x = embedded
    for layer in range(weights.spec.num_layers):
        inputs = weights.norm(x, f"blk.{layer}.attn_norm")
        keys, values = weights.keys_values(inputs, layer)
        parts = (rotary(weights.queries(inputs, layer), positions), rotary(keys, positions), values)
        split = zip(*(torch.split(part, list(counts)) for part in parts), strict=True)
        attended = torch.cat([attend(q, k, v, causal=True) for q, k, v in split])
        x = weights.finish_layer(x, attended, layer)
    return weights.norm(x, "output_norm")


class TeacherForced:
    """Every reply token predicted from the target's own text.

    A served draft whose first tokens are accepted has read that very text, so step m of the chain at i is the
    prediction of chain i + m - 1: one pass gives all steps.
    """

    def __init__(self, weights: LayerWeights, batch: Batch, target: DraftTarget, rotary: Rotary) -> None:
        self.weights, self.batch, self.target, self.rotary = weights, batch, target, rotary

    @staticmethod
    def make_batch(sequences: Sequence[CapturedSequence], embedding: Tensor, target_width: int) -> Batch:
        """Pack ``sequences``: as ``batches.make_batch``, but row i is token i, and no states are read."""
        tokens = [torch.from_numpy(item.tokens[:-1].astype(np.int64)) for item in sequences]
        counts = [len(part) for part in tokens]
        starts = np.concatenate(([0], np.cumsum(counts)[:-1])).tolist()
        chains = [
            torch.arange(item.response_start, count) for item, count in zip(sequences, counts, strict=True)
        ]
        targets = [
            torch.from_numpy(np.ascontiguousarray(item.states[item.response_start : count, -target_width:]))
            for item, count in zip(sequences, counts, strict=True)
        ]
        owners = torch.repeat_interleave(
            torch.arange(len(chains)), torch.tensor([len(part) for part in chains])
        )
        return Batch(
            states=torch.empty((0, 0), dtype=embedding.dtype),
            embedded=embedding[torch.cat(tokens)],
            positions=torch.cat([torch.arange(count) for count in counts]),
            sequence_starts=tuple(starts),
            chain_positions=torch.cat([part + start for part, start in zip(chains, starts, strict=True)]),
            chain_sequences=owners,
            chain_room=torch.cat([count - part for part, count in zip(chains, counts, strict=True)]),
            target_states=torch.cat(targets).view(torch.bfloat16),
        )

    def steps(self, keep: Sequence[float], generator: torch.Generator) -> list[StepResult]:
        """Return ``len(keep)`` draft steps, the loss with the first one (all chains take part in all)."""
        batch = self.batch
        hidden = run_layers(self.weights, batch.embedded, batch.positions, batch.pair_counts, self.rotary)[
            batch.chain_positions
        ]
        first = self.target.loss(hidden, batch.target_states, generator)
        results = [StepResult(torch.arange(batch.num_chains), first.loss, first.matches)]
        for step in range(1, len(keep)):
            rows = torch.nonzero(batch.chain_room > step).flatten()
            if not len(rows):
                break
            results.append(StepResult(rows, torch.zeros(()), first.matches[rows + step]))
        return results
