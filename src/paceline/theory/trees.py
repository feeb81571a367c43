"""Exact acceptance rules for token trees.

A tree of N nodes is two flat sequences: ``tokens`` and ``parents`` (index of the parent node, -1 for the
root; parents come first). ``p`` [N + 1, V] holds the target laws: row 0 after the root, row i + 1 after node
i. ``uniforms`` [N + 1]: entry i decides about node i, the last one draws the recovered or bonus token. A walk
starts at the root and tries the children of each node in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paceline.errors import ConfigError
from paceline.theory.acceptance import StepOutcome
from paceline.theory.chance import Chance, UniformChance
from paceline.theory.laws import (
    FloatArray,
    check_count,
    check_laws,
    check_tokens,
    check_uniforms,
    leftover,
    normalised,
)

ROOT = -1


def certain_step(p: npt.ArrayLike, tokens: Sequence[int], uniforms: npt.ArrayLike) -> StepOutcome:
    """Verify a certain chain (n-gram, suffix, prediction): the tree in which each token follows the last.

    ``p`` [K + 1, V], ``uniforms`` [K + 1]. Token x is kept with probability p(x): the rejection rule with q
    the point mass on x.
    """
    return certain_tree_step(p, tokens, range(-1, len(tokens) - 1), uniforms)


def certain_tree_step(
    p: npt.ArrayLike, tokens: Sequence[int], parents: Sequence[int], uniforms: npt.ArrayLike
) -> StepOutcome:
    """Verify a tree of certain drafts: a rejected child's mass is removed and the rest renormalised.

    Shapes as in the module's docstring. Raises ``ConfigError`` for a malformed tree or arrays that do not
    fit.
    """
    laws = check_laws(p, "p", len(tokens) + 1)
    ids, links = check_tree(tokens, parents, laws.shape[1])
    return certain_tree_rule(laws, ids, links, UniformChance(check_uniforms(uniforms, len(ids) + 1)))


def sampled_tree_step(
    p: npt.ArrayLike,
    q: npt.ArrayLike,
    tokens: Sequence[int],
    parents: Sequence[int],
    uniforms: npt.ArrayLike,
) -> StepOutcome:
    """Verify a tree whose children were drawn from the draft law without replacement, in the order drawn.

    ``q`` [N + 1, V]: row 0 is the law that the root's children were drawn from, row i + 1 that of node i's
    (any law where a node has none). The j-th child x was drawn from q_j, which is q without the children
    before it, renormalised; it is kept with probability min(1, r_j(x) / q_j(x)), where r_1 = p and r_(j+1) =
    norm(max(r_j - q_j, 0)). Since r_(j+1) does not depend on which token was rejected, each trial is a
    rejection step for the law that is still owed. Source: recursive rejection sampling, Yang et al. 2024
    (arXiv 2401.06706) and Jeon et al. 2024 (arXiv 2402.14160).
    """
    laws = check_laws(p, "p", len(tokens) + 1)
    drafts = check_laws(q, "q", len(tokens) + 1)
    if laws.shape != drafts.shape:
        raise ConfigError(f"p has shape {laws.shape} but q {drafts.shape}; both need the same vocabulary")
    ids, links = check_tree(tokens, parents, laws.shape[1])
    for node, (token, parent) in enumerate(zip(ids, links, strict=True)):
        if drafts[parent + 1, token] == 0.0:
            raise ConfigError(
                f"node {node} holds token {token}, which its parent's draft law gives probability 0; "
                "pass the law after the very filters it was drawn through"
            )
    chance = UniformChance(check_uniforms(uniforms, len(ids) + 1))
    return sampled_tree_rule(laws, drafts, ids, links, chance)


def certain_tree_rule(
    p: FloatArray, tokens: tuple[int, ...], parents: tuple[int, ...], chance: Chance
) -> StepOutcome:
    """The rule of :func:`certain_tree_step` on checked arguments and any source of chance."""
    node, accepted = ROOT, list[int]()
    while True:
        left = p[node + 1].copy()
        offspring = children(parents, node)
        for child in offspring:
            token = tokens[child]
            if chance.accept(float(left[token] / left.sum()), child):
                break
            left[token] = 0.0
        else:
            extra = chance.draw(left, len(tokens))
            return StepOutcome(tuple(accepted), extra, bonus=not offspring)
        accepted.append(tokens[child])
        node = child


def sampled_tree_rule(
    p: FloatArray, q: FloatArray, tokens: tuple[int, ...], parents: tuple[int, ...], chance: Chance
) -> StepOutcome:
    """The rule of :func:`sampled_tree_step` on checked arguments and any source of chance."""
    node, accepted = ROOT, list[int]()
    while True:
        owed, law = p[node + 1], q[node + 1].copy()
        offspring = children(parents, node)
        for child in offspring:
            token = tokens[child]
            law = normalised(law)
            if chance.accept(min(1.0, float(owed[token]) / float(law[token])), child):
                break
            owed = leftover(owed, law)
            law[token] = 0.0
        else:
            extra = chance.draw(owed, len(tokens))
            return StepOutcome(tuple(accepted), extra, bonus=not offspring)
        accepted.append(tokens[child])
        node = child


def draw_without_replacement(law: FloatArray, count: int, chance: Chance) -> tuple[int, ...]:
    """Return up to ``count`` distinct tokens of a law [V], each drawn from what the ones before left over.

    Fewer come back when the law has fewer tokens of positive probability. The ``count`` largest values of
    log q + Gumbel noise, in order, have the same law.
    """
    check_count(count, "count", 0, "0 draws nothing")
    left, drawn = law.copy(), list[int]()
    for index in range(min(count, int(np.count_nonzero(law)))):
        drawn.append(chance.draw(normalised(left), index))
        left[drawn[-1]] = 0.0
    return tuple(drawn)


def children(parents: Sequence[int], node: int) -> tuple[int, ...]:
    """Return the children of ``node`` (-1 for the root) in draft order."""
    return tuple(child for child, parent in enumerate(parents) if parent == node)


def check_tree(
    tokens: Sequence[int], parents: Sequence[int], vocab: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return tokens and parents of a well-formed tree; raise ``ConfigError`` otherwise."""
    ids, links = check_tokens(tokens, vocab), tuple(int(parent) for parent in parents)
    if len(ids) != len(links):
        raise ConfigError(
            f"the tree has {len(ids)} tokens but {len(links)} parents; give one parent per token"
        )
    for node, parent in enumerate(links):
        if not ROOT <= parent < node:
            raise ConfigError(
                f"parents[{node}] is {parent}; parents come before their children (-1 is the root)"
            )
        if (ids[node], parent) in zip(ids[:node], links[:node], strict=True):
            raise ConfigError(f"node {node} repeats token {ids[node]} under parent {parent}; merge the two")
    return ids, links
