"""The engine's acceptance rules have the same law of outcomes as the theory's readable ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.engine.accept import Acceptance, block_chain, match, reject_chain
from paceline.records import TokenLaw
from paceline.sampling import kernels
from paceline.sampling.noise import Stream, noise_key, noise_word, uniform_of_word
from paceline.theory.acceptance import StepOutcome, block_rule, coupled_step, greedy_step, rejection_rule
from paceline.theory.chance import Chance
from paceline.theory.enumeration import step_law
from paceline.theory.trees import certain_tree_rule
from paceline.tree import TokenTree
from support.enumerated import EnumeratedChance

VOCAB = 4


def random_laws(rng: np.random.Generator, count: int) -> np.ndarray:
    """Laws with zeros, ties and near-certainties."""
    weights = rng.random((count, VOCAB)) ** rng.integers(1, 6)
    weights[rng.random((count, VOCAB)) < 0.25] = 0.0
    weights[np.arange(count), rng.integers(VOCAB, size=count)] += 0.1
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def sparse(law: np.ndarray) -> TokenLaw:
    ids = np.flatnonzero(law).astype(np.int32)
    return TokenLaw(ids, law[ids])


def outcome(acceptance: Acceptance, tokens: tuple[int, ...]) -> StepOutcome:
    accepted = tuple(tokens[node] for node in acceptance.path)
    return StepOutcome(accepted, acceptance.final, acceptance.origin == "bonus")


def assert_same(mine: dict[object, float], theirs: dict[object, float]) -> None:
    for key in {*mine, *theirs}:
        assert mine.get(key, 0.0) == pytest.approx(theirs.get(key, 0.0), abs=1e-12), key


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(0, 4), block=st.booleans())
def test_sampled_chains(seed: int, length: int, block: bool) -> None:
    rng = np.random.default_rng(seed)
    p, q = random_laws(rng, length + 1), random_laws(rng, length)
    tokens = tuple(int(rng.choice(VOCAB, p=law)) for law in q)
    reference, rule = (block_rule, block_chain) if block else (rejection_rule, reject_chain)

    def mine(chance: Chance) -> StepOutcome:
        laws = tuple(map(sparse, q))
        return outcome(rule(tokens, laws, lambda i: sparse(p[i]), EnumeratedChance(chance), 0), tokens)

    assert_same(step_law(mine), step_law(lambda chance: reference(p, q, tokens, chance)))


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(0, 6))
def test_certain_trees_are_one_draw_per_node(seed: int, size: int) -> None:
    """Trying children with mass removal is the same law as keeping the child that equals one draw."""
    rng = np.random.default_rng(seed)
    nodes = {(int(rng.integers(-1, i)) if i else -1, int(rng.integers(VOCAB))) for i in range(size)}
    order = sorted(nodes)
    parents = tuple(min(parent, i - 1) for i, (parent, _) in enumerate(order))
    tokens = tuple(token for _, token in order)
    if len(set(zip(parents, tokens, strict=True))) < len(tokens):
        return
    p = random_laws(rng, len(tokens) + 1)

    def mine(chance: Chance) -> StepOutcome:
        source = EnumeratedChance(chance)
        return outcome(
            match(TokenTree(tokens, parents), lambda node, _: source.draw(sparse(p[node + 1]), 0)), tokens
        )

    assert_same(step_law(mine), step_law(lambda chance: certain_tree_rule(p, tokens, parents, chance)))


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(0, 5))
def test_greedy_and_coupled_chains(seed: int, length: int) -> None:
    rng = np.random.default_rng(seed)
    p = random_laws(rng, length + 1)
    keys = [noise_key(seed, position, Stream.TOKEN) for position in range(length + 1)]
    noise = np.array(
        [
            [-np.log(-np.log(uniform_of_word(noise_word(key, token)))) for token in range(VOCAB)]
            for key in keys
        ]
    )
    drawn = [kernels.coupled_token(sparse(law), key) for law, key in zip(p, keys, strict=True)]
    best = [int(law.argmax()) for law in p]
    wrong = rng.random(length) < 0.3
    for choices, reference in (
        (drawn, lambda t: coupled_step(p, t, noise)),
        (best, lambda t: greedy_step(p, t)),
    ):
        tokens = tuple(int(rng.integers(VOCAB)) if wrong[i] else choices[i] for i in range(length))
        mine = match(TokenTree.chain(tokens), lambda node, _path, choices=choices: choices[node + 1])
        assert outcome(mine, tokens) == reference(tokens)
