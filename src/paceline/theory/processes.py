"""One whole step of speculation on synthetic models: draft, verify, accept.

A :data:`Process` binds a target, a drafter and a rule. It is run with random chance by ``simulate.py`` and
with every possible chance by ``enumeration.py``.
"""

# K is the name that the papers, the design and the glossary use.
# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from paceline.theory.acceptance import Rule, StepOutcome, coupled_step
from paceline.theory.chance import Chance
from paceline.theory.coupling import coupled_pair_law, coupled_token, gumbel_noise
from paceline.theory.laws import FloatArray, LawFunction
from paceline.theory.trees import (
    ROOT,
    certain_tree_rule,
    draw_without_replacement,
    sampled_tree_rule,
)

Context = tuple[int, ...]
Process = Callable[[Context, Chance], StepOutcome]
PositionedProcess = Callable[[Context, Chance, int], StepOutcome]


def plain_process(target: LawFunction) -> Process:
    """Return plain decoding: one token of the target's law, nothing drafted."""

    def step(context: Context, chance: Chance) -> StepOutcome:
        return StepOutcome((), chance.draw(target(context), 0), bonus=True)

    return step


def chain_process(target: LawFunction, draft: LawFunction, K: int, rule: Rule) -> Process:
    """Return the process that samples a chain of ``K`` tokens from the draft and verifies it by ``rule``."""

    def step(context: Context, chance: Chance) -> StepOutcome:
        tokens, laws = context, list[FloatArray]()
        for i in range(K):
            laws.append(draft(tokens))
            tokens = (*tokens, chance.draw(laws[-1], i))
        drafted = tokens[len(context) :]
        p = np.stack([target(context + drafted[:i]) for i in range(K + 1)])
        q = np.stack(laws) if laws else np.empty((0, p.shape[1]))
        return rule(p, q, drafted, chance)

    return step


def coupled_process(target: LawFunction, draft: LawFunction, K: int, seed: int) -> PositionedProcess:
    """Return the process whose drafter and target draw with the noise of (seed, position).

    It takes the position of the first token of the step and no chance at all.
    """

    def step(context: Context, chance: Chance, position: int) -> StepOutcome:
        p, drafted = [target(context)], list[int]()
        noise = [gumbel_noise(seed, position + i, len(p[0])) for i in range(K + 1)]
        for i in range(K):
            drafted.append(coupled_token(draft(context + tuple(drafted)), noise[i]))
            p.append(target(context + tuple(drafted)))
        return coupled_step(np.stack(p), drafted, np.stack(noise))

    return step


def coupled_pair_process(target: LawFunction, draft: LawFunction, K: int) -> Process:
    """Return the coupled process with its noise integrated out: each position draws from the exact pair law.

    The noise of a drafted position behind the first difference is not looked at in the step, and the draft at
    that position tells nothing about the noise of other positions; so positions are independent.
    """

    def step(context: Context, chance: Chance) -> StepOutcome:
        accepted: Context = ()
        for i in range(K):
            p, q = target(context + accepted), draft(context + accepted)
            drawn, drafted = divmod(chance.draw(coupled_pair_law(p, q).ravel(), i), len(p))
            if drawn != drafted:
                return StepOutcome(accepted, drawn, bonus=False)
            accepted = (*accepted, drawn)
        return StepOutcome(accepted, chance.draw(target(context + accepted), K), bonus=True)

    return step


def certain_process(target: LawFunction, tokens: Sequence[int], parents: Sequence[int]) -> Process:
    """Return the process that proposes the same certain tree at every step."""
    ids, links = tuple(tokens), tuple(parents)

    def step(context: Context, chance: Chance) -> StepOutcome:
        rows = _rows(target, context, ids, links)
        return certain_tree_rule(rows, ids, links, chance)

    return step


def sampled_tree_process(target: LawFunction, draft: LawFunction, widths: Sequence[int]) -> Process:
    """Return the process whose nodes at depth d each get ``widths[d]`` children without replacement."""

    def step(context: Context, chance: Chance) -> StepOutcome:
        ids, links = _grow(draft, context, widths, chance)
        p, q = _rows(target, context, ids, links), _rows(draft, context, ids, links)
        return sampled_tree_rule(p, q, ids, links, chance)

    return step


def _grow(
    draft: LawFunction, context: Context, widths: Sequence[int], chance: Chance
) -> tuple[Context, Context]:
    tokens, parents = list[int](), list[int]()
    level: list[tuple[int, Context]] = [(ROOT, context)]
    for width in widths:
        deeper: list[tuple[int, Context]] = []
        for node, path in level:
            for token in draw_without_replacement(draft(path), width, chance):
                deeper.append((len(tokens), (*path, token)))
                tokens.append(token)
                parents.append(node)
        level = deeper
    return tuple(tokens), tuple(parents)


def _rows(model: LawFunction, context: Context, tokens: Context, parents: Context) -> FloatArray:
    """Return the model's law after the root and after each node, float64 [N + 1, V]."""
    paths = [context]
    for token, parent in zip(tokens, parents, strict=True):
        paths.append((*paths[parent + 1], token))
    return np.stack([model(path) for path in paths])


def at_any_position(process: Process) -> PositionedProcess:
    """Return ``process`` in the form of one that is told its position."""

    def step(context: Context, chance: Chance, position: int) -> StepOutcome:
        return process(context, chance)

    return step


def positioned(
    rule: str, rules: dict[str, Rule], target: LawFunction, draft: LawFunction, K: int, seed: int
) -> PositionedProcess:
    """Return the chain process named ``rule``: one of ``rules``, or ``coupled`` with ``seed``."""
    if rule == "coupled":
        return coupled_process(target, draft, K, seed)
    return at_any_position(chain_process(target, draft, K, rules[rule]))
