"""Rules that look plausible and are wrong. The proofs and the statistical test must both catch them."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.theory.acceptance import Rule, StepOutcome, block_probabilities, rejection_rule
from paceline.theory.chance import Chance
from paceline.theory.laws import FloatArray, law_function, leftover, normalised
from paceline.theory.processes import Process, chain_process
from paceline.theory.trees import draw_without_replacement
from paceline.theory.verify import verify_distribution
from support.theory_laws import assert_exact

TARGET = np.array([0.45, 0.3, 0.2, 0.05])
DRAFT = np.array([0.25, 0.35, 0.1, 0.3])
# Drafts are drawn from the two best tokens only, as top_k = 2 would have it.
FILTERED = normalised(np.where(DRAFT >= 0.3, DRAFT, 0.0))


def compare_argmax(p: FloatArray, q: FloatArray, tokens: tuple[int, ...], chance: Chance) -> StepOutcome:
    """Keep what equals the target's argmax, as greedy decoding may, while sampling."""
    return _keep_while(lambda i: float(tokens[i] == p[i].argmax()), p, p, tokens, chance)


def half_of_maximum(p: FloatArray, q: FloatArray, tokens: tuple[int, ...], chance: Chance) -> StepOutcome:
    """Keep what the target finds at least half as likely as its best token."""
    return _keep_while(lambda i: float(p[i, tokens[i]] >= p[i].max() / 2), p, p, tokens, chance)


def unfiltered_draft_law(
    p: FloatArray, q: FloatArray, tokens: tuple[int, ...], chance: Chance
) -> StepOutcome:
    """Judge tokens that were drawn after the filter by the draft law before it."""
    return rejection_rule(p, np.stack([DRAFT] * len(tokens)), tokens, chance)


def temperature_one(p: FloatArray, q: FloatArray, tokens: tuple[int, ...], chance: Chance) -> StepOutcome:
    """Verify against the target at temperature 1 though the request asks for 2 (p is at 2; undo it)."""
    at_one = p**2 / (p**2).sum(axis=1, keepdims=True)
    return rejection_rule(at_one, q, tokens, chance)


def _keep_while(
    kept: object, p: FloatArray, recover: FloatArray, tokens: tuple[int, ...], chance: Chance
) -> StepOutcome:
    assert callable(kept)
    for i in range(len(tokens)):
        if not chance.accept(kept(i), i):
            return StepOutcome(tokens[:i], chance.draw(recover[i], len(tokens)), bonus=False)
    return StepOutcome(tokens, chance.draw(p[-1], len(tokens)), bonus=True)


CONTROLS = pytest.mark.parametrize(
    ("rule", "draft"),
    [
        (compare_argmax, DRAFT),
        (unfiltered_draft_law, FILTERED),
        (temperature_one, DRAFT),
        (half_of_maximum, DRAFT),
    ],
    ids=["argmax", "q-before-filters", "temperature-1", "half-of-maximum"],
)


@CONTROLS
@pytest.mark.parametrize("length", [1, 2])
def test_enumeration_catches_it(rule: Rule, draft: FloatArray, length: int) -> None:
    target = law_function(TARGET)
    assert_exact(chain_process(target, law_function(draft), length, rejection_rule), target, length + 1)
    with pytest.raises(AssertionError, match="is off by 0"):
        assert_exact(chain_process(target, law_function(draft), length, rule), target, length + 1)


@CONTROLS
def test_samples_catch_it(rule: Rule, draft: FloatArray) -> None:
    """False alarm of the first line and miss of the second: below 1e-6 each."""
    rng = np.random.default_rng(5)
    assert verify_distribution(TARGET, draft, 3, 10_000, rng).speculative.p_value > 1e-6
    check = verify_distribution(TARGET, draft, 3, 10_000, rng, rule=rule)
    assert check.speculative.p_value < 1e-12
    assert check.speculative.total_variation > 3 * check.sampling_noise
    assert check.plain.p_value > 1e-6


def with_replacement_fan(target: FloatArray, draft: FloatArray) -> Process:
    """Children drawn without replacement, judged as if each had been drawn from the full draft law."""

    def step(context: tuple[int, ...], chance: Chance) -> StepOutcome:
        owed = target
        for child, token in enumerate(draw_without_replacement(draft, 2, chance)):
            if chance.accept(min(1.0, float(owed[token] / draft[token])), child):
                return StepOutcome((token,), chance.draw(target, 2), bonus=True)
            owed = leftover(owed, draft)
        return StepOutcome((), chance.draw(owed, 2), bonus=False)

    return step


def test_children_without_replacement_need_their_own_rule() -> None:
    with pytest.raises(AssertionError, match="is off by 0"):
        assert_exact(with_replacement_fan(TARGET, DRAFT), law_function(TARGET), 2)


def test_block_coins_asked_from_the_front_are_wrong() -> None:
    """Block verification takes the LARGEST i whose coin says yes; stopping at the first no is wrong."""

    def front_first(p: FloatArray, q: FloatArray, tokens: tuple[int, ...], chance: Chance) -> StepOutcome:
        running, kept = block_probabilities(p, q, tokens)
        for i in range(len(tokens)):
            if not chance.accept(kept[i], i):
                return StepOutcome(
                    tokens[:i], chance.draw(leftover(p[i], q[i], running[i]), len(tokens)), bonus=False
                )
        return StepOutcome(tokens, chance.draw(p[-1], len(tokens)), bonus=True)

    target = law_function(TARGET)
    with pytest.raises(AssertionError, match="is off by 0"):
        assert_exact(chain_process(target, law_function(DRAFT), 2, front_first), target, 3)
