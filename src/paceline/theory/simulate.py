"""The whole loop on synthetic models, counted: what the formulas promise against what happens.

>>> rng = np.random.default_rng(1)
>>> target = make_target(32, rng)
>>> simulate(target, make_draft(target, 0.9, rng), 4, 1000, rng).num_tokens >= 1000
True
"""

# K is the name that the papers, the design and the glossary use.
# ruff: noqa: N803

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from paceline.errors import ConfigError, nearest_name
from paceline.theory.acceptance import Rule, block_rule, rejection_rule
from paceline.theory.chance import RandomChance
from paceline.theory.expected import expected_tokens
from paceline.theory.laws import FloatArray, IntArray, check_count, check_length, check_pair, law_function
from paceline.theory.processes import PositionedProcess, at_any_position, chain_process, coupled_process
from paceline.theory.synthetic import make_draft, make_markov_target, make_target, measure_alpha

RuleName = Literal["rejection", "block", "coupled"]
RULE_NAMES: tuple[RuleName, ...] = get_args(RuleName)
RULES: dict[str, Rule] = {"rejection": rejection_rule, "block": block_rule}


@dataclass(frozen=True, slots=True)
class Trace:
    """What a loop emitted: ``tokens`` int64 [N] and, per step, ``num_accepted`` int64 [S]."""

    tokens: IntArray
    num_accepted: IntArray


@dataclass(frozen=True, slots=True)
class Simulation:
    """Counts of one simulated loop. Plain decoding makes ``num_tokens`` target calls for the same text.

    ``K``: draft length. ``num_tokens``: emitted, recovered and bonus included. ``target_calls``: verify
    steps. ``draft_calls``: draft steps. ``num_draft_tokens``, ``num_accepted_tokens``: as in the glossary.
    ``alpha``: acceptance of a draft token that is reached, computed from the laws under rejection.
    ``tokens_per_call_noise``: standard error of ``tokens_per_call``.
    """

    rule: str
    K: int
    alpha: float
    num_tokens: int
    target_calls: int
    draft_calls: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_rejections: int
    tokens_per_call_noise: float

    @property
    def tokens_per_call(self) -> float:
        """Output tokens ÷ target calls."""
        return self.num_tokens / self.target_calls

    @property
    def expected_tokens_per_call(self) -> float:
        """The formula for ``alpha`` and K; holds for rejection with one acceptance in all contexts."""
        return expected_tokens(self.alpha, self.K)

    @property
    def acceptance_rate(self) -> float:
        """Accepted ÷ drafted; 0 when nothing was drafted."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0

    @property
    def conditional_acceptance(self) -> float:
        """Accepted ÷ judged (a token behind a rejection is drafted but never judged); 0 when none was."""
        judged = self.num_accepted_tokens + self.num_rejections
        return self.num_accepted_tokens / judged if judged else 0.0

    @property
    def saved_calls(self) -> float:
        """Share of plain decoding's target calls that were not needed."""
        return 1.0 - self.target_calls / self.num_tokens


def run_loop(process: PositionedProcess, num_tokens: int, rng: np.random.Generator, root: int = 0) -> Trace:
    """Run steps until at least ``num_tokens`` tokens are out, starting after the token ``root``.

    The process sees the last token only, which is all that context-free and Markov laws look at.
    """
    chance, tokens, num_accepted = RandomChance(rng), list[int](), list[int]()
    last = root
    while len(tokens) < num_tokens:
        outcome = process((last,), chance, len(tokens))
        tokens += outcome.tokens
        num_accepted.append(len(outcome.accepted))
        last = outcome.extra
    return Trace(np.array(tokens, dtype=np.int64), np.array(num_accepted, dtype=np.int64))


def bound_process(
    target: FloatArray, draft: FloatArray, K: int, rule: RuleName | Rule, rng: np.random.Generator
) -> PositionedProcess:
    """Return the step process of a rule, given by name or as a function (for rules under study)."""
    p, q = law_function(target), law_function(draft)
    if not isinstance(rule, str):
        return at_any_position(chain_process(p, q, K, rule))
    if rule == "coupled":
        return coupled_process(p, q, K, seed=int(rng.integers(1 << 63)))
    if rule not in RULES:
        known = ", ".join(RULE_NAMES)
        raise ConfigError(f"rule is {rule!r}{nearest_name(rule, RULE_NAMES)}; choose one of {known}")
    return at_any_position(chain_process(p, q, K, RULES[rule]))


def simulate(
    target: npt.ArrayLike,
    draft: npt.ArrayLike,
    K: int,
    num_tokens: int,
    rng: np.random.Generator,
    rule: RuleName = "rejection",
) -> Simulation:
    """Run the loop on context-free [V] or Markov [V, V] laws and count.

    The last step is counted whole, so ``num_tokens`` may be exceeded by up to K. Raises ``ConfigError`` for
    anything that is no law, a negative ``K`` or an unknown ``rule``.
    """
    p, q = check_pair(target, draft)
    check_length(K)
    check_count(num_tokens, "num_tokens", 1, "a run emits at least one token")
    trace = run_loop(bound_process(p, q, K, rule, rng), num_tokens, rng)
    return summarise(trace, K, measure_alpha(p, q), rule)


def summarise(trace: Trace, K: int, alpha: float, rule: str) -> Simulation:
    """Return the counts of a trace."""
    steps = len(trace.num_accepted)
    spread = float(np.std(trace.num_accepted, ddof=1)) if steps > 1 else math.inf
    return Simulation(
        rule=rule,
        K=K,
        alpha=alpha,
        num_tokens=len(trace.tokens),
        target_calls=steps,
        draft_calls=K * steps,
        num_draft_tokens=K * steps,
        num_accepted_tokens=int(trace.num_accepted.sum()),
        num_rejections=int((trace.num_accepted < K).sum()),
        tokens_per_call_noise=spread / math.sqrt(steps),
    )


def sweep(
    rng: np.random.Generator,
    alignments: Sequence[float] = (0.60, 0.75, 0.90),
    lengths: Sequence[int] = (2, 4, 6),
    *,
    vocab: int = 64,
    num_tokens: int = 10_000,
    markov: bool = False,
    rule: RuleName = "rejection",
) -> list[Simulation]:
    """Simulate every alignment (acceptance of the draft) with every draft length, against one target."""
    target = make_markov_target(vocab, rng) if markov else make_target(vocab, rng)
    drafts = [make_draft(target, alignment, rng) for alignment in alignments]
    return [simulate(target, draft, K, num_tokens, rng, rule) for draft in drafts for K in lengths]
