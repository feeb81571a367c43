"""Training-time test: one batch unrolled over draft steps (Li et al. 2025, arXiv 2503.01840, §3.1).

Everything is indexed by the position i where a chain starts. Draft step m (1, 2, …) of the chain at i reads
token i + m and predicts the target's law after it, as it will when it drafts:

    step  input state       input token  RoPE position  attends to                            target
    1     g_i               t_{i+1}      i              step-1 keys 0 … i                   law after t_{i+1}
    m     out_{i, m-1}      t_{i+m}      i + m - 1      step-1 keys 0 … i, its own chain's  law after t_{i+m}
                                                        keys of steps 2 … m

so the banded mask is a causal block (shared step-1 keys) and one diagonal per further step. Worked example:
tokens t0 … t5 with the reply from t3 on (``response_start`` 3). Chains start at i = 2 (state of t2 with token
t3, the first one a served head ever sees) and i = 3; the chain at 2 predicts the laws after t3, t4; the
chain at 3 the one after t4. The law after the last token t5 (often EOS) is never asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from paceline.train.batches import Batch, make_batch
from paceline.train.captured import CapturedSequence
from paceline.train.fusing import fused
from paceline.train.head import HeadWeights
from paceline.train.loss import StepLoss, soft_cross_entropy
from paceline.train.target import TargetHead


@dataclass(frozen=True, slots=True)
class StepResult:
    """One draft step. ``rows`` int64: which chains took part. See :class:`StepLoss` for the rest."""

    rows: Tensor
    loss: Tensor
    matches: Tensor


class Rotary:
    """Half-split rotation tables, float32 [positions, head dim / 2]."""

    def __init__(self, inverse_frequencies: Sequence[float], positions: int) -> None:
        angles = torch.outer(
            torch.arange(positions, dtype=torch.float64),
            torch.tensor(inverse_frequencies, dtype=torch.float64),
        )
        self._cos, self._sin = angles.cos().float(), angles.sin().float()

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate x [T, heads, head dim] to ``positions`` [T]."""
        return fused(rotate)(x, self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x [T, heads, d] rotated in halves by angles whose ``cos`` and ``sin`` are [T, 1, d / 2]."""
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


@dataclass(slots=True)
class _LayerMemory:
    """Keys and values of one layer: step 1 of all positions, later steps of the chains still running."""

    keys: Tensor
    values: Tensor
    later: list[tuple[Tensor, Tensor]]

    def keep(self, chosen: Tensor) -> None:
        self.later = [(k[chosen], v[chosen]) for k, v in self.later]


class Unrolled:
    """The draft steps of one batch, one after another.

    ``keep[m - 1]``: share of the chains that go on to step m (1 for all): later steps matter less and cost as
    much, so half of the chains will do there.
    """

    @staticmethod
    def make_batch(sequences: Sequence[CapturedSequence], embedding: Tensor, target_width: int) -> Batch:
        """See :func:`~paceline.train.batches.make_batch`."""
        return make_batch(sequences, embedding, target_width)

    def __init__(self, weights: HeadWeights, batch: Batch, target: TargetHead, rotary: Rotary) -> None:
        self.weights, self.batch, self.rotary = weights, batch, rotary
        self.target = target
        self.laws, self.best = target.laws(batch.target_states)
        self.rows = torch.arange(batch.num_chains)
        self.memory: list[_LayerMemory] = []
        self.out = torch.empty(0)

    def steps(self, keep: Sequence[float], generator: torch.Generator) -> list[StepResult]:
        """Run ``len(keep)`` draft steps."""
        results = []
        for step, share in enumerate(keep, start=1):
            self._drop_chains(step, share, generator)
            if not len(self.rows):
                break
            self.out = self._first_step() if step == 1 else self._later_step(step)
            loss = self._loss(step)
            results.append(StepResult(self.rows, loss.loss, loss.matches))
        return results

    def _drop_chains(self, step: int, share: float, generator: torch.Generator) -> None:
        """Leave out chains whose step has no target any more, and all but ``share`` of the others."""
        alive = self.batch.chain_room[self.rows] >= step
        if share < 1:
            alive &= torch.rand(len(alive), generator=generator) < share
        if bool(alive.all()):
            return
        self.rows = self.rows[alive]
        if step > 1:
            self.out = self.out[alive]
        for memory in self.memory:
            memory.keep(alive)

    def _first_step(self) -> Tensor:
        """All positions give keys and values; chains give outputs."""
        batch, weights = self.batch, self.weights
        state = weights.project(batch.states)
        x = weights.first_inputs(batch.embedded, state)
        everywhere = torch.arange(len(state))
        for layer in range(weights.spec.num_layers):
            is_last = layer == weights.spec.num_layers - 1
            x = x if layer == 0 else weights.norm(state, f"blk.{layer}.attn_norm")
            keys, values = weights.keys_values(x, layer)
            memory = _LayerMemory(self.rotary(keys, batch.positions), values, [])
            self.memory.append(memory)
            # Only keys and values of the last layer are needed where no chain starts.
            places = batch.chain_positions[self.rows] if is_last else everywhere
            owners = batch.chain_sequences[self.rows] if is_last else batch.pair_sequences
            queries = self.rotary(weights.queries(x[places], layer), batch.positions[places])
            attended = self._attend(queries, memory, places, owners)
            state = weights.finish_layer(state[places], attended, layer)
        return state

    def _later_step(self, step: int) -> Tensor:
        batch, weights = self.batch, self.weights
        starts, owners = batch.chain_positions[self.rows], batch.chain_sequences[self.rows]
        positions = batch.positions[starts] + (step - 1)
        embedded, residual = self._later_inputs(starts + (step - 1))
        inputs = weights.first_inputs(embedded, residual)
        for layer in range(weights.spec.num_layers):
            memory = self.memory[layer]
            inputs = inputs if layer == 0 else weights.norm(residual, f"blk.{layer}.attn_norm")
            keys, values = weights.keys_values(inputs, layer)
            memory.later.append((self.rotary(keys, positions), values))
            queries = self.rotary(weights.queries(inputs, layer), positions)
            residual = weights.finish_layer(residual, self._attend(queries, memory, starts, owners), layer)
        return residual

    def _later_inputs(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Return what a later step reads: the embedding of the drafted token, the state fed back.

        ``pairs`` int64: the pairs whose second token that is.
        """
        return self.batch.embedded[pairs], self.out

    def _loss(self, step: int) -> StepLoss:
        rows = self.rows + (step - 1)
        hidden = self.weights.norm(self.out, "output_norm")
        return soft_cross_entropy(
            hidden, self.weights.tensors["output.weight"], self.laws[rows], self.best[rows]
        )

    def _attend(self, queries: Tensor, memory: _LayerMemory, places: Tensor, owners: Tensor) -> Tensor:
        """Return [T, heads * d] of queries [T, heads, d] at rows ``places`` of sequences ``owners``."""
        counts = torch.bincount(owners, minlength=self.batch.num_sequences).tolist()
        pairs = self.batch.pair_counts
        later = [(torch.split(key, counts), torch.split(value, counts)) for key, value in memory.later]
        # Split once: a slice per sequence would give each a gradient of the whole tensor's size.
        parts = zip(
            self.batch.sequence_starts,
            torch.split(queries, counts),
            torch.split(places, counts),
            torch.split(memory.keys, pairs),
            torch.split(memory.values, pairs),
            strict=True,
        )
        pieces = []
        for sequence, (begin, query, place, keys, values) in enumerate(parts):
            if len(query):
                own = [(key[sequence], value[sequence]) for key, value in later]
                pieces.append(_attend_sequence(query, place - begin, keys, values, own))
        return torch.cat(pieces)


def _attend_sequence(
    queries: Tensor, positions: Tensor, keys: Tensor, values: Tensor, later: list[tuple[Tensor, Tensor]]
) -> Tensor:
    """Attention of one sequence's chains [C, heads, d] that start at rising ``positions``."""
    visible = int(positions[-1]) + 1
    all_keys = torch.cat((keys[:visible], *(key for key, _ in later)))
    all_values = torch.cat((values[:visible], *(value for _, value in later)))
    attended = functional.scaled_dot_product_attention(
        queries.transpose(0, 1).unsqueeze(0),
        all_keys.transpose(0, 1).unsqueeze(0),
        all_values.transpose(0, 1).unsqueeze(0),
        attn_mask=banded_mask(positions, visible, len(later), queries.dtype),
        enable_gqa=True,
    )
    return attended[0].transpose(0, 1).reshape(len(queries), -1)


def banded_mask(positions: Tensor, visible: int, later_steps: int, dtype: torch.dtype) -> Tensor:
    """Return 0 where a chain may look and -inf elsewhere, [C, visible + later_steps * C].

    ``positions`` int64 [C]: where the chains start. Columns: step-1 keys 0 … visible - 1, then each later
    step's key of every chain, of which a chain sees its own.
    """
    count = len(positions)
    mask = torch.full((count, visible + later_steps * count), float("-inf"), dtype=dtype)
    mask[:, :visible].masked_fill_(torch.arange(visible) <= positions.unsqueeze(1), 0.0)
    for step in range(later_steps):
        first = visible + step * count
        mask[:, first : first + count].fill_diagonal_(0.0)
    return mask
