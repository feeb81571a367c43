"""Exact laws of what a step emits, by taking every branch of the very code that runs.

:func:`outcomes` replays a function of :class:`~paceline.theory.chance.Chance` once for each path through its
coin flips and draws, and weighs the path with its exact probability. Meant for small vocabularies: the number
of paths grows like (2 V) ** K.

    >>> target, draft = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    >>> law = block_law(rejection_process(target, draft, K=1), ())
    >>> round(sum(law.values()), 12)
    1.0
"""

# K is the name that the papers, the design and the glossary use.
# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from paceline.errors import ConfigError
from paceline.theory.acceptance import StepOutcome, block_rule, rejection_rule
from paceline.theory.chance import Chance
from paceline.theory.laws import FloatArray, LawFunction, law_function
from paceline.theory.processes import Context, Process, chain_process

T = TypeVar("T")
BlockLaw = dict[Context, float]


class _Replay:
    """Chance that follows a given path of choices and then always takes the first one left."""

    def __init__(self, path: list[int]) -> None:
        self.path = path
        self.options: list[int] = []  # how many branches each choice had
        self.weight = 1.0

    def accept(self, probability: float, index: int) -> bool:
        branches = [(True, probability), (False, 1.0 - probability)]
        return self._choose([branch for branch in branches if branch[1] > 0.0])

    def draw(self, law: FloatArray, index: int) -> int:
        total = float(law.sum())
        return self._choose([(int(token), float(law[token]) / total) for token in np.flatnonzero(law)])

    def _choose(self, branches: list[tuple[T, float]]) -> T:
        depth = len(self.options)
        self.options.append(len(branches))
        if depth == len(self.path):
            self.path.append(0)
        value, probability = branches[self.path[depth]]
        self.weight *= probability
        return value


def outcomes(run: Callable[[Chance], T]) -> Iterator[tuple[T, float]]:
    """Yield (result, probability) for every path of ``run`` through its chance; they sum to 1."""
    path: list[int] = []
    while True:
        replay = _Replay(path)
        yield run(replay), replay.weight
        while path and path[-1] + 1 == replay.options[len(path) - 1]:
            path.pop()
        if not path:
            return
        path[-1] += 1


def block_law(process: Process, context: Context) -> BlockLaw:
    """Return the law of the tokens one step emits after ``context``: blocks of different lengths."""
    law: BlockLaw = {}
    for outcome, weight in outcomes(lambda chance: process(context, chance)):
        law[outcome.tokens] = law.get(outcome.tokens, 0.0) + weight
    return law


def mean_tokens(process: Process, context: Context = ()) -> float:
    """Return the exact expected number of tokens of one step, recovered or bonus token included."""
    return sum(weight * len(tokens) for tokens, weight in block_law(process, context).items())


def sequence_law(target: LawFunction, horizon: int) -> FloatArray:
    """Return the target's joint law of its next ``horizon`` tokens, float64 [V] * horizon."""
    return _extended({(): 1.0}, target, (), horizon)


def completed_law(process: Process, target: LawFunction, horizon: int) -> FloatArray:
    """Return the joint law [V] * horizon of one step's tokens followed by plain decoding.

    A rule is exact if and only if this equals :func:`sequence_law`. ``horizon`` must cover the longest block.
    """
    return _extended(block_law(process, ()), target, (), horizon)


def loop_law(process: Process, vocab: int, horizon: int) -> FloatArray:
    """Return the joint law [V] * horizon of the first tokens of the whole loop: step after step."""
    law = np.zeros((vocab,) * horizon)
    open_blocks: BlockLaw = {(): 1.0}
    while open_blocks:
        longer: BlockLaw = {}
        for done, weight in open_blocks.items():
            for tokens, share in block_law(process, done).items():
                text = (*done, *tokens)[:horizon]  # what lies behind the end is dropped, as max_tokens does
                if len(text) == horizon:
                    law[text] += weight * share
                else:
                    longer[text] = longer.get(text, 0.0) + weight * share
        open_blocks = longer
    return law


def rejection_process(target: FloatArray, draft: FloatArray, K: int) -> Process:
    """Return the rejection rule on context-free [V] or Markov [V, V] laws."""
    return chain_process(law_function(target), law_function(draft), K, rejection_rule)


def block_process(target: FloatArray, draft: FloatArray, K: int) -> Process:
    """Return block verification on context-free [V] or Markov [V, V] laws."""
    return chain_process(law_function(target), law_function(draft), K, block_rule)


def step_law(outcome_of: Callable[[Chance], StepOutcome]) -> dict[tuple[Context, int], float]:
    """Return the exact law of (tokens, number accepted) of any function of chance."""
    law: dict[tuple[Context, int], float] = {}
    for outcome, weight in outcomes(outcome_of):
        key = (outcome.tokens, len(outcome.accepted))
        law[key] = law.get(key, 0.0) + weight
    return law


def _extended(blocks: BlockLaw, target: LawFunction, context: Context, horizon: int) -> FloatArray:
    vocab = len(target(context))
    law = np.zeros((vocab,) * horizon)
    for tokens, weight in blocks.items():
        if len(tokens) > horizon:
            raise ConfigError(f"horizon is {horizon}, but a block has {len(tokens)} tokens; raise it to that")
        law[tokens] += weight * _continuation(target, context + tokens, horizon - len(tokens))
    return law


def _continuation(target: LawFunction, context: Context, length: int) -> FloatArray:
    if length == 0:
        return np.ones(())
    law = target(context)
    return np.stack(
        [law[token] * _continuation(target, (*context, token), length - 1) for token in range(len(law))]
    )
