"""The theory of speculative decoding: exact acceptance rules, their proofs, and the planner's arithmetic.

Numpy only. ``acceptance`` and ``trees`` are the readable reference for the engine's rules, ``enumeration``
gives the exact law of what they emit, ``verify`` tests it on samples, ``expected`` predicts tokens and time,
and ``simulate`` runs the whole loop on the laws of ``synthetic``. See docs/theory.md.
"""

from paceline.theory.acceptance import (
    StepOutcome,
    accept_probability,
    block_verification_step,
    coupled_step,
    greedy_step,
    overlap,
    residual,
    speculative_step,
)
from paceline.theory.coupling import coupled_pair_law, coupled_token, gumbel_noise
from paceline.theory.expected import (
    CostCurve,
    break_even_alpha,
    expected_tokens,
    expected_tokens_at,
    expected_tokens_tree,
    optimal_draft_length,
    speedup,
    wall_time_per_token,
)
from paceline.theory.simulate import Simulation, simulate, sweep
from paceline.theory.synthetic import kl, make_draft, make_markov_target, make_target, measure_alpha
from paceline.theory.trees import certain_step, certain_tree_step, sampled_tree_step
from paceline.theory.verify import DistributionCheck, verify_distribution

__all__ = [
    "CostCurve",
    "DistributionCheck",
    "Simulation",
    "StepOutcome",
    "accept_probability",
    "block_verification_step",
    "break_even_alpha",
    "certain_step",
    "certain_tree_step",
    "coupled_pair_law",
    "coupled_step",
    "coupled_token",
    "expected_tokens",
    "expected_tokens_at",
    "expected_tokens_tree",
    "greedy_step",
    "gumbel_noise",
    "kl",
    "make_draft",
    "make_markov_target",
    "make_target",
    "measure_alpha",
    "optimal_draft_length",
    "overlap",
    "residual",
    "sampled_tree_step",
    "simulate",
    "speculative_step",
    "speedup",
    "sweep",
    "verify_distribution",
    "wall_time_per_token",
]
