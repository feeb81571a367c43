"""The simulated loop against the formulas, and its counts against each other."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.errors import ConfigError
from paceline.theory import make_draft, make_markov_target, make_target, simulate, sweep
from paceline.theory.chance import RandomChance
from paceline.theory.enumeration import block_process, mean_tokens
from paceline.theory.laws import law_function
from paceline.theory.processes import at_any_position, plain_process
from paceline.theory.simulate import run_loop


@pytest.mark.parametrize("markov", [False, True], ids=["context-free", "markov"])
def test_the_sweep_agrees_with_the_formula(markov: bool) -> None:
    """Eighteen means, each within 5.5 standard errors: false alarm 18 x 4e-8 < 1e-6."""
    runs = sweep(np.random.default_rng(1), vocab=32, num_tokens=6_000, markov=markov)
    assert [(round(run.alpha, 9), run.K) for run in runs] == [
        (alpha, length) for alpha in (0.6, 0.75, 0.9) for length in (2, 4, 6)
    ]
    for run in runs:
        assert abs(run.tokens_per_call - run.expected_tokens_per_call) < 5.5 * run.tokens_per_call_noise
        assert run.tokens_per_call_noise < 0.1
        judged = run.num_accepted_tokens + run.num_rejections
        noise = np.sqrt(run.alpha * (1 - run.alpha) / judged)
        assert abs(run.conditional_acceptance - run.alpha) < 5.5 * noise


@pytest.mark.parametrize("rule", ["rejection", "block", "coupled"])
def test_counts_fit_together(rule: str) -> None:
    rng = np.random.default_rng(2)
    target = make_markov_target(16, rng)
    run = simulate(target, make_draft(target, 0.7, rng), 3, 500, rng, rule=rule)
    assert 500 <= run.num_tokens <= 503
    assert run.num_tokens == run.num_accepted_tokens + run.target_calls
    assert run.draft_calls == run.num_draft_tokens == 3 * run.target_calls
    assert run.acceptance_rate == run.num_accepted_tokens / run.num_draft_tokens
    assert run.tokens_per_call == run.num_tokens / run.target_calls
    assert run.saved_calls == pytest.approx(1 - 1 / run.tokens_per_call)
    assert run.rule == rule


def test_block_verification_matches_its_enumerated_mean() -> None:
    """4,000 steps against the exact mean, five standard errors (6e-7); rejection's mean lies outside them."""
    rng = np.random.default_rng(3)
    target, draft = np.array([0.3, 0.3, 0.4]), np.array([0.7, 0.2, 0.1])
    run = simulate(target, draft, 3, 8_000, rng, rule="block")
    exact = mean_tokens(block_process(target, draft, 3))
    assert abs(run.tokens_per_call - exact) < 5 * run.tokens_per_call_noise
    assert run.expected_tokens_per_call < exact - 5 * run.tokens_per_call_noise


def test_edges_of_acceptance_and_length() -> None:
    rng = np.random.default_rng(4)
    target = np.array([0.5, 0.5, 0.0])
    always = simulate(target, target, 4, 100, rng)
    assert (always.tokens_per_call, always.acceptance_rate, always.expected_tokens_per_call) == (5, 1, 5)
    never = simulate(target, [0.0, 0.0, 1.0], 4, 100, rng)
    assert (never.tokens_per_call, never.acceptance_rate, never.expected_tokens_per_call) == (1, 0, 1)
    plain = simulate(target, target, 0, 100, rng)
    assert (plain.target_calls, plain.draft_calls, plain.acceptance_rate, plain.saved_calls) == (100, 0, 0, 0)
    assert plain.conditional_acceptance == 0
    for run in (always, never, plain):
        assert run.num_tokens == 100


def test_a_run_repeats_with_its_generator() -> None:
    target = make_target(16, np.random.default_rng(5))
    draft = make_draft(target, 0.6, np.random.default_rng(6))
    for rule in ("rejection", "block", "coupled"):
        first, second = (simulate(target, draft, 2, 300, np.random.default_rng(7), rule) for _ in range(2))
        assert first == second


def test_run_loop_of_plain_decoding_draws_one_token_a_step() -> None:
    target = make_target(8, np.random.default_rng(8))
    trace = run_loop(at_any_position(plain_process(law_function(target))), 50, np.random.default_rng(9))
    chance = RandomChance(np.random.default_rng(9))
    assert trace.tokens.tolist() == [chance.draw(target, 0) for _ in range(50)]
    assert not trace.num_accepted.any()


def test_bad_arguments() -> None:
    rng, law = np.random.default_rng(0), [0.5, 0.5]
    with pytest.raises(
        ConfigError, match=r"rule is 'blok' \(did you mean 'block'\?\); choose one of rejection"
    ):
        simulate(law, law, 2, 10, rng, rule="blok")
    with pytest.raises(ConfigError, match="K is -1; give a whole number of at least 0"):
        simulate(law, law, -1, 10, rng)
    with pytest.raises(ConfigError, match="num_tokens is 0"):
        simulate(law, law, 2, 0, rng)
