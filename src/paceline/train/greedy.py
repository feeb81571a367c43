"""Greedy chains of the torch head: what the engine drafts, computed a second time by other code."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from paceline.train.head import HeadWeights
from paceline.train.ttt import Rotary


class GreedyChains:
    """Chains from several places of one sequence.

    ``weights`` in float32; ``embedding`` [V, H]; ``draft_to_target`` int64 [Vd]; ``states`` [n, k * Ht] and
    ``tokens`` int64 [n + 1]: pair i is the state of token i with token i + 1.
    """

    def __init__(
        self,
        weights: HeadWeights,
        embedding: Tensor,
        draft_to_target: Tensor,
        rotary: Rotary,
        states: Tensor,
        tokens: Tensor,
    ) -> None:
        self._weights, self._embedding, self._rotary = weights, embedding, rotary
        self._draft_to_target = draft_to_target
        positions = torch.arange(len(states))
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        residual = weights.project(states)
        inputs = weights.first_inputs(embedding[tokens[1 : len(states) + 1]].float(), residual)
        for layer in range(weights.spec.num_layers):
            if layer:
                inputs = weights.norm(residual, f"blk.{layer}.attn_norm")
            keys, values = weights.keys_values(inputs, layer)
            self._keys.append(self._rotary(keys, positions))
            self._values.append(values)
            queries = self._rotary(weights.queries(inputs, layer), positions)
            attended = attend(queries, self._keys[layer], self._values[layer], causal=True)
            residual = weights.finish_layer(residual, attended, layer)
        self._outputs = residual

    @torch.no_grad()
    def draft(self, pair: int, depth: int) -> tuple[list[int], list[float]]:
        """Return ``depth`` target ids drafted behind pair ``pair``, and how far each logit leads the next."""
        keys = [part[: pair + 1] for part in self._keys]
        values = [part[: pair + 1] for part in self._values]
        out = self._outputs[pair : pair + 1]
        drafted: list[int] = []
        leads: list[float] = []
        for step in range(1, depth + 1):
            best = self._logits(out).topk(2)
            leads.append(float(best.values[0, 0] - best.values[0, 1]))
            drafted.append(int(self._draft_to_target[best.indices[0, 0]]))
            if step < depth:
                out = self._advance(drafted[-1], out, torch.tensor([pair + step]), keys, values)
        return drafted, leads

    def _logits(self, out: Tensor) -> Tensor:
        return self._weights.linear(self._weights.norm(out, "output_norm"), "output")

    def _advance(
        self, token: int, out: Tensor, position: Tensor, keys: list[Tensor], values: list[Tensor]
    ) -> Tensor:
        """Return the output of one drafted row; its keys and values join ``keys`` and ``values``."""
        weights, residual = self._weights, out
        inputs = weights.first_inputs(self._embedding[token : token + 1].float(), residual)
        for layer in range(weights.spec.num_layers):
            if layer:
                inputs = weights.norm(residual, f"blk.{layer}.attn_norm")
            key, value = weights.keys_values(inputs, layer)
            keys[layer] = torch.cat((keys[layer], self._rotary(key, position)))
            values[layer] = torch.cat((values[layer], value))
            queries = self._rotary(weights.queries(inputs, layer), position)
            attended = attend(queries, keys[layer], values[layer], causal=False)
            residual = weights.finish_layer(residual, attended, layer)
        return residual


def attend(queries: Tensor, keys: Tensor, values: Tensor, *, causal: bool) -> Tensor:
    """Return [T, heads * d] of queries [T, heads, d] over keys and values [N, kv heads, d]."""
    query, key, value = (part.transpose(0, 1).unsqueeze(0) for part in (queries, keys, values))
    attended = scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True)
    return attended[0].transpose(0, 1).reshape(len(queries), -1)


def leading_matches(drafted: Sequence[int], truth: Sequence[int]) -> int:
    """Return how many drafted tokens a greedy target with this continuation would accept."""
    count = 0
    for token, wanted in zip(drafted, truth, strict=False):
        if token != wanted:
            break
        count += 1
    return count
