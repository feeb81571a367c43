"""verify_distribution: exact rules pass on larger vocabularies, and the record says what it should."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.errors import ConfigError
from paceline.theory import make_draft, make_markov_target, make_target, verify_distribution
from paceline.theory.acceptance import rejection_rule


@pytest.mark.parametrize("rule", ["rejection", "block", "coupled"])
@pytest.mark.parametrize(("alpha", "length"), [(0.3, 4), (0.9, 2)])
def test_exact_rules_pass_on_two_hundred_tokens(rule: str, alpha: float, length: int) -> None:
    """Chi-square of 10,000 samples; false alarm below 1e-6."""
    rng = np.random.default_rng(1)
    target = make_target(200, rng)
    check = verify_distribution(target, make_draft(target, alpha, rng), length, 10_000, rng, rule=rule)
    assert check.num_samples == 10_000
    for fit in (check.plain, check.speculative):
        assert fit.p_value > 1e-6
        assert 0.7 < fit.total_variation / check.sampling_noise < 1.3
        assert 50 < fit.degrees_of_freedom < 200


@pytest.mark.parametrize("rule", ["rejection", "block", "coupled"])
def test_exact_rules_pass_on_markov_laws(rule: str) -> None:
    """Transitions of 10,000 samples, by previous token; false alarm below 1e-6."""
    rng = np.random.default_rng(2)
    target = make_markov_target(12, rng)
    check = verify_distribution(target, make_draft(target, 0.6, rng), 4, 10_000, rng, rule=rule)
    assert check.speculative.p_value > 1e-6
    assert check.plain.p_value > 1e-6
    assert check.speculative.degrees_of_freedom > 50


def test_a_draft_that_leaves_tokens_out_and_one_of_disjoint_support() -> None:
    rng = np.random.default_rng(3)
    target = np.array([0.4, 0.3, 0.2, 0.1, 0.0])
    for draft in ([0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0], [0.5, 0.0, 0.0, 0.25, 0.25]):
        for rule in ("rejection", "block", "coupled"):
            check = verify_distribution(target, draft, 3, 3_000, rng, rule=rule)
            assert check.speculative.p_value > 1e-6


def test_samples_of_the_wrong_law_are_told_apart() -> None:
    """The power of the test at its use: a law 3 % off is seen in 20,000 samples."""
    rng = np.random.default_rng(4)
    target = np.array([0.5, 0.3, 0.2])

    def slightly_off(p: object, q: object, tokens: object, chance: object) -> object:
        shifted = np.asarray(p) + np.array([0.03, -0.03, 0.0])
        return rejection_rule(shifted, q, tokens, chance)

    check = verify_distribution(target, [0.2, 0.4, 0.4], 3, 20_000, rng, rule=slightly_off)
    assert check.speculative.p_value < 1e-9
    assert check.plain.p_value > 1e-6


def test_bad_arguments() -> None:
    rng, law = np.random.default_rng(0), [0.5, 0.5]
    with pytest.raises(ConfigError, match="n_samples is 0"):
        verify_distribution(law, law, 2, 0, rng)
    with pytest.raises(ConfigError, match="K is -2"):
        verify_distribution(law, law, -2, 10, rng)
    with pytest.raises(ConfigError, match="rule is 'greedy'"):
        verify_distribution(law, law, 2, 10, rng, rule="greedy")
