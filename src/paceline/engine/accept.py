"""Which drafted tokens are kept: walk the tree from its root by the law the draft states (design.md §5).

- *match*: the target chooses a token at each node and the child that holds it is kept. With the argmax this
  is the greedy rule, with the position's shared noise the coupled one. With a fresh draw it is the rejection
  rule for certain drafts: trying children in order, accepting child c with p(c) over the mass not yet
  removed, keeps c with probability p(c) and otherwise draws from p without the children: the joint law of one
  draw from p.
- *rejection* (Leviathan, Kalman, Matias 2023; Chen et al. 2023) for sampled chains.
- *block* (Sun et al. 2024, arXiv 2403.10444) for sampled chains; on certain drafts it has nothing to gain,
  because matching keeps each path with the largest probability any exact rule can.

``paceline.theory`` holds the readable references; the tests compare.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.records import Draft, FloatArray, Origin, TokenLaw
from paceline.sampling import kernels
from paceline.sampling.chance import Chance
from paceline.sampling.sampler import RequestSampler
from paceline.tree import ROOT, TokenTree


@dataclass(frozen=True, slots=True)
class Acceptance:
    """``path``: accepted nodes from the top. ``final``: the one token more, ``origin`` recovered or bonus."""

    path: tuple[int, ...]
    final: int
    origin: Origin


def accept(sampler: RequestSampler, draft: Draft, rows: FloatArray) -> Acceptance:
    """Verify ``draft`` against the target's logits ``rows`` float32 [1 + nodes, V], the root's row first."""
    if draft.laws is None or sampler.rule in ("greedy", "coupled"):
        return match(draft.tree, lambda node, path: sampler.choose(rows[node + 1], path))
    tokens = draft.tree.tokens

    def target_law(depth: int) -> TokenLaw:
        return sampler.law(rows[depth], tokens[:depth])

    rule = reject_chain if sampler.rule == "rejection" else block_chain
    return rule(tokens, draft.laws, target_law, sampler.chance, sampler.root)


def match(tree: TokenTree, choose: Callable[[int, tuple[int, ...]], int]) -> Acceptance:
    """Keep the child that holds the target's choice. ``choose(node, tokens of its path)`` is that choice."""
    if not tree.tokens:
        return Acceptance((), choose(ROOT, ()), "bonus")
    children: dict[tuple[int, int], int] = {
        (parent, token): node
        for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True))
    }
    node, path, tokens = ROOT, [], ()  # type: tuple[int, list[int], tuple[int, ...]]
    while True:
        token = choose(node, tokens)
        child = children.get((node, token))
        if child is None:
            origin: Origin = "recovered" if node in tree.parents else "bonus"
            return Acceptance(tuple(path), token, origin)
        node, tokens = child, (*tokens, token)
        path.append(child)


def reject_chain(
    tokens: tuple[int, ...],
    laws: tuple[TokenLaw, ...],
    target_law: Callable[[int], TokenLaw],
    chance: Chance,
    root: int,
) -> Acceptance:
    """Keep token i with probability min(1, p/q); draw from norm(max(p - q, 0)) at the first rejection.

    ``laws[i]``: what ``tokens[i]`` was drawn from. ``target_law(i)``: the target's law behind i tokens.
    """
    for depth, (token, q) in enumerate(zip(tokens, laws, strict=True)):
        p = target_law(depth)
        if not chance.accepts(min(1.0, p.prob(token) / q.prob(token)), root, depth):
            return _end(depth, len(tokens), p, q, 1.0, chance, root)
    depth = len(tokens)
    return _end(depth, depth, target_law(depth), None, 1.0, chance, root)


def block_chain(
    tokens: tuple[int, ...],
    laws: tuple[TokenLaw, ...],
    target_law: Callable[[int], TokenLaw],
    chance: Chance,
    root: int,
) -> Acceptance:
    """Keep the longest prefix i whose coin h_i says yes (design.md §5); arguments as for ``reject_chain``."""
    last = len(tokens)
    target_laws, ratios = [target_law(0)], [1.0]
    for depth, (token, q) in enumerate(zip(tokens, laws, strict=True)):
        ratio = min(1.0, ratios[-1] * target_laws[-1].prob(token) / q.prob(token))
        if ratio == 0.0:  # nothing from here on can be kept: h is 0 at each later depth
            break
        ratios.append(ratio)
        target_laws.append(target_law(depth + 1))
    for kept in range(len(ratios) - 1, 0, -1):
        coin = ratios[last] if kept == last else _block_coin(target_laws[kept], laws[kept], ratios[kept])
        if chance.accepts(coin, root, kept - 1):
            break
    else:
        kept = 0
    q_next = None if kept == last else laws[kept]
    return _end(kept, last, target_laws[kept], q_next, ratios[kept], chance, root)


def _block_coin(p: TokenLaw, q: TokenLaw, ratio: float) -> float:
    """Return h_i = Z / (Z + 1 - p_i) with Z the mass of max(p_i P - Q, 0)."""
    mass = kernels.positive_mass(p, q, ratio)
    missing = 1.0 - ratio
    # 0 / 0: p_i = 1 and P = Q, where the coin of i + 1 says yes whatever this one says.
    return mass / (mass + missing) if mass + missing > 0.0 else 1.0


def _end(
    kept: int, last: int, p: TokenLaw, q: TokenLaw | None, ratio: float, chance: Chance, root: int
) -> Acceptance:
    """Draw the one token more: from P after full acceptance, else from norm(max(ratio · P - Q, 0))."""
    law = p
    if q is not None:
        left, mass = kernels.positive_difference(p, q, ratio)
        # Mass 0 after a rejection can only come from rounding (P = Q up to an ulp): P is then the law.
        law = left if mass > 0.0 else p
    token = chance.draw(law, root + 1 + kept)
    return Acceptance(tuple(range(kept)), token, "bonus" if kept == last else "recovered")
