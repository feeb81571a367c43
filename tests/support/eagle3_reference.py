"""The reference: an EAGLE-3 head in float64 numpy, written to be read, from the facts in eagle3.md.

Nothing here knows the loader or the executor: it takes plain arrays under the names of
``paceline.models.eagle3_spec.Eagle3Files``. A head's row stands for one *pair*: the state of token i with the
embedding of token i + 1, at position i. Whole passes are computed each time, without a cache.

>>> reference = Eagle3Reference(head.spec, head.weights, head.draft_to_target, target_embedding=embedding)
>>> reference.draft(tokens, states, width=1, max_depth=4, max_nodes=4, min_log_prob=-inf).tokens
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.models.eagle3_spec import Eagle3Spec
from paceline.models.spec import RopeSpec

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Weights = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class ReferenceTree:
    """A drafted tree: target ids, parents (-1: the root) and path log-probabilities, best node first."""

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    log_probs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Node:
    """A candidate: its target id, its parent among the candidates, and the sum of log-probabilities."""

    token: int
    parent: int
    log_prob: float
    depth: int


class Eagle3Reference:
    """One head over the weights ``weights``; the target's embedding and head are used where it has none.

    ``target_embedding`` [V, H], ``target_head`` [V, H]: the target's own tables, unscaled.
    """

    def __init__(
        self,
        spec: Eagle3Spec,
        weights: Weights,
        draft_to_target: npt.NDArray[np.int32],
        *,
        target_embedding: npt.NDArray[Any] | None = None,
        target_head: npt.NDArray[Any] | None = None,
    ) -> None:
        self.spec = spec
        self.draft_to_target = draft_to_target
        self._weights = {name: values.astype(np.float64) for name, values in weights.items()}
        if not spec.has_embedding:
            assert target_embedding is not None
            self._weights["token_embd.weight"] = target_embedding.astype(np.float64)
        if not spec.has_head:
            assert target_head is not None
            self._weights["output.weight"] = target_head.astype(np.float64)[draft_to_target]

    def project(self, states: npt.NDArray[Any]) -> Array:
        """Return g [T, H] of the target's captured states [T, n * Ht]."""
        spec, x = self.spec, states.astype(np.float64)
        if spec.has_input_norm:
            x = self._norm("input_norm.weight", x)
        if spec.has_state_norms:
            parts = np.split(x, spec.num_states, axis=-1)
            x = np.concatenate(
                [self._norm(f"fc_norm.{i}.weight", part) for i, part in enumerate(parts)], axis=-1
            )
        return x @ self._weights["fc.weight"].T

    def forward(
        self, tokens: Sequence[int], g: npt.NDArray[Any], positions: Sequence[int], visible: Mask
    ) -> tuple[Array, Array]:
        """Return logits [T, Vd] and the states to feed back [T, H].

        ``tokens``: target ids of the pairs' second tokens; ``visible`` [T, T]: which rows each row attends
        to (ancestors and itself), a sliding window not yet applied.
        """
        where = np.asarray(positions)
        hidden = self._first_layer(self._weights["token_embd.weight"][list(tokens)], g, where, visible)
        for layer in range(1, self.spec.num_layers):
            normed = self._norm(f"blk.{layer}.attn_norm.weight", hidden)
            hidden = hidden + self._attention(layer, normed, where, visible)
            hidden = hidden + self._feed_forward(layer, hidden)
        normed = self._norm("output_norm.weight", hidden)
        return normed @ self._weights["output.weight"].T, normed if self.spec.norm_output else hidden

    def chain(self, tokens: Sequence[int], g: npt.NDArray[Any]) -> tuple[Array, Array]:
        """Return what ``forward`` does for pairs at positions 0, 1, 2, … of one sequence."""
        return self.forward(tokens, g, range(len(tokens)), np.tri(len(tokens), dtype=bool))

    def draft(
        self,
        tokens: Sequence[int],
        states: npt.NDArray[Any],
        *,
        max_nodes: int,
        max_depth: int,
        width: int,
        min_log_prob: float = -np.inf,
        min_parent_log_prob: float = -np.inf,
    ) -> ReferenceTree:
        """Return the tree drafted behind ``tokens`` (N + 1 committed ids, the root last).

        ``states`` [N, n * Ht]: the target's, of all tokens but the root. Level by level, each of the
        ``width`` best nodes of a level proposes its ``width`` most likely successors; of all proposals whose
        path is at least as likely as ``min_log_prob`` the ``max_nodes`` best are kept. A node below
        ``min_parent_log_prob`` proposes nothing.
        """
        g = self.project(states)
        nodes: list[_Node] = []
        frontier = [-1]
        for depth in range(1, max_depth + 1):
            laws = _log_softmax(self._tree_logits(tokens, g, nodes)[0])
            level = [
                node
                for parent in frontier
                for node in self._successors(laws[parent + len(g)], nodes, parent, depth, width)
                if node.log_prob >= min_log_prob
            ]
            first = len(nodes)
            nodes += level
            best = sorted(range(len(level)), key=lambda i: -level[i].log_prob)[:width]
            frontier = [first + i for i in sorted(best) if level[i].log_prob >= min_parent_log_prob]
            if not frontier:
                break
        return _best(nodes, max_nodes)

    def rows_of(
        self, tokens: Sequence[int], states: npt.NDArray[Any], tree: Sequence[int], parents: Sequence[int]
    ) -> tuple[Array, Array]:
        """Return logits and fed-back states of the catch-up pairs and then of each node of a given tree."""
        nodes = [_Node(token, parent, 0.0, 0) for token, parent in zip(tree, parents, strict=True)]
        return self._tree_logits(tokens, self.project(states), nodes)

    # ---- trees ----

    def _tree_logits(self, tokens: Sequence[int], g: Array, nodes: list[_Node]) -> tuple[Array, Array]:
        """Return logits and states of the pairs of ``tokens``, then of every node.

        A node's row has the state its parent's row fed back. Rows are computed until no state changes, which
        a tree of depth d reaches after d + 1 passes: slow, and without any order to get wrong.
        """
        known = len(g)
        ids = [*tokens[1:], *(node.token for node in nodes)]
        visible = np.tri(known, len(ids), dtype=bool)
        positions = list(range(known))
        for index, node in enumerate(nodes):
            row = visible[known + node.parent if node.parent >= 0 else known - 1].copy()
            row[known + index] = True
            visible = np.vstack([visible, row])
            positions.append(positions[known + node.parent if node.parent >= 0 else known - 1] + 1)
        inputs = np.vstack([g, np.zeros((len(nodes), g.shape[1]))])
        for _ in range(1 + max([0, *(position - known + 1 for position in positions)])):
            logits, out = self.forward(ids, inputs, positions, visible)
            for index, node in enumerate(nodes):
                inputs[known + index] = out[known + node.parent if node.parent >= 0 else known - 1]
        return logits, out

    def _successors(
        self, log_law: Array, nodes: list[_Node], parent: int, depth: int, width: int
    ) -> list[_Node]:
        before = nodes[parent].log_prob if parent >= 0 else 0.0
        best = np.argsort(-log_law, kind="stable")[:width]
        return [_Node(int(self.draft_to_target[i]), parent, before + float(log_law[i]), depth) for i in best]

    # ---- layers ----

    def _first_layer(self, embedded: Array, g: npt.NDArray[Any], where: Any, visible: Mask) -> Array:
        state = np.asarray(g, np.float64)
        normed = self._norm("blk.0.attn_norm_2.weight", state)
        x = np.concatenate([self._norm("blk.0.attn_norm.weight", embedded), normed], axis=-1)
        residual = normed if self.spec.norm_before_residual else state
        hidden = residual + self._attention(0, x, where, visible)
        return hidden + self._feed_forward(0, hidden)

    def _attention(self, layer: int, x: Array, where: Any, visible: Mask) -> Array:
        spec, prefix, rows = self.spec, f"blk.{layer}.", len(x)
        q = self._project(f"{prefix}attn_q", x).reshape(rows, spec.num_heads, spec.head_dim)
        k = self._project(f"{prefix}attn_k", x).reshape(rows, spec.num_kv_heads, spec.head_dim)
        v = self._project(f"{prefix}attn_v", x).reshape(rows, spec.num_kv_heads, spec.head_dim)
        if spec.has_qk_norm:
            q = self._norm(f"{prefix}attn_q_norm.weight", q)
            k = self._norm(f"{prefix}attn_k_norm.weight", k)
        q, k = rotate_at(q, spec.rope, where), rotate_at(k, spec.rope, where)
        seen = visible.copy()
        if spec.layer_windows[layer]:
            seen &= where[:, None] - where[None, :] < spec.layer_windows[layer]
        mixed = np.zeros((rows, spec.num_heads, spec.head_dim))
        for head in range(spec.num_heads):
            shared = head * spec.num_kv_heads // spec.num_heads
            scores = q[:, head] @ k[:, shared].T * spec.head_dim**-0.5
            mixed[:, head] = np.exp(_log_softmax(np.where(seen, scores, -np.inf))) @ v[:, shared]
        return self._project(f"{prefix}attn_output", mixed.reshape(rows, -1))

    def _feed_forward(self, layer: int, hidden: Array) -> Array:
        x = self._norm(f"blk.{layer}.ffn_norm.weight", hidden)
        gate, up = self._project(f"blk.{layer}.ffn_gate", x), self._project(f"blk.{layer}.ffn_up", x)
        return self._project(f"blk.{layer}.ffn_down", gate / (1 + np.exp(-gate)) * up)

    def _project(self, name: str, x: Array) -> Array:
        out = x @ self._weights[f"{name}.weight"].T
        return out + self._weights[f"{name}.bias"] if f"{name}.bias" in self._weights else out

    def _norm(self, name: str, x: Array) -> Array:
        scale = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.spec.norm_eps)
        normed: Array = x * scale * self._weights[name]
        return normed


def rotate_at(x: Array, rope: RopeSpec, positions: Any) -> Array:
    """Rotate [T, heads, dims] by the rows' positions; dims past the rotated ones stay."""
    half = len(rope.inverse_frequencies)
    turned = np.asarray(positions)[:, None] * np.array(rope.inverse_frequencies)
    cos = np.cos(turned)[:, None, :] * rope.attention_factor
    sin = np.sin(turned)[:, None, :] * rope.attention_factor
    step = rope.style == "interleaved"
    first = slice(0, 2 * half, 2) if step else slice(0, half)
    second = slice(1, 2 * half, 2) if step else slice(half, 2 * half)
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out


def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(axis=-1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def _best(nodes: list[_Node], max_nodes: int) -> ReferenceTree:
    """Return the likeliest nodes, best first; a parent is never less likely and was proposed earlier."""
    order = sorted(range(len(nodes)), key=lambda i: (-nodes[i].log_prob, i))[:max_nodes]
    assert all(nodes[a].log_prob >= nodes[b].log_prob for a, b in pairwise(order))
    place = {node: index for index, node in enumerate(order)} | {-1: -1}
    return ReferenceTree(
        tokens=tuple(nodes[i].token for i in order),
        parents=tuple(place[nodes[i].parent] for i in order),
        log_probs=tuple(nodes[i].log_prob for i in order),
    )
