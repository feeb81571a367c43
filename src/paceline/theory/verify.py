"""Is the law of speculative samples the target's? An answer with its own uncertainty.

>>> rng = np.random.default_rng(2)
>>> target = make_target(16, rng)
>>> verify_distribution(target, make_draft(target, 0.6, rng), 3, 2000, rng).speculative.p_value > 1e-6
True
"""

# K is the name that the papers, the design and the glossary use.
# ruff: noqa: N803

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.theory.acceptance import Rule
from paceline.theory.fit import SampleFit, expected_total_variation, sample_fit
from paceline.theory.laws import FloatArray, IntArray, check_count, check_length, check_pair, law_function
from paceline.theory.processes import at_any_position, plain_process
from paceline.theory.simulate import RuleName, bound_process, run_loop


@dataclass(frozen=True, slots=True)
class DistributionCheck:
    """Plain and speculative samples beside the target.

    ``num_samples``: tokens of each kind. ``plain``, ``speculative``: their fit. ``sampling_noise``: the mean
    total variation that this many exact samples show; both fits should lie near it.
    """

    num_samples: int
    plain: SampleFit
    speculative: SampleFit
    sampling_noise: float


def verify_distribution(
    target: npt.ArrayLike,
    draft: npt.ArrayLike,
    K: int,
    n_samples: int,
    rng: np.random.Generator,
    rule: RuleName | Rule = "rejection",
) -> DistributionCheck:
    """Draw ``n_samples`` tokens plainly and by speculation and compare both with the target.

    Laws are context-free [V] or Markov [V, V]; for the latter, tokens are counted by the token before them.
    ``rule`` is a rule's name or any function of the form of ``acceptance.Rule``, so that a rule under study
    can be judged: an exact one keeps ``speculative.p_value`` uniform on [0, 1], a wrong one drives it to 0.
    Raises ``ConfigError`` for anything that is no law.
    """
    p, q = check_pair(target, draft)
    check_length(K)
    check_count(n_samples, "n_samples", 1, "a fit needs samples")
    plain = run_loop(at_any_position(plain_process(law_function(p))), n_samples, rng)
    speculative = run_loop(bound_process(p, q, K, rule, rng), n_samples, rng)
    laws = np.atleast_2d(p)
    plain_counts = _counts(plain.tokens[:n_samples], laws)
    counts = _counts(speculative.tokens[:n_samples], laws)
    return DistributionCheck(
        num_samples=n_samples,
        plain=sample_fit(plain_counts, laws),
        speculative=sample_fit(counts, laws),
        sampling_noise=expected_total_variation(laws, counts.sum(axis=1)),
    )


def _counts(tokens: IntArray, laws: FloatArray, root: int = 0) -> IntArray:
    counts = np.zeros(laws.shape, dtype=np.int64)
    before = np.zeros_like(tokens)
    if len(laws) > 1:
        before[0], before[1:] = root, tokens[:-1]
    np.add.at(counts, (before, tokens), 1)
    return counts
