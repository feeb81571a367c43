"""Synthetic targets and drafts: laws with a known acceptance, for proofs, tests and planning.

>>> rng = np.random.default_rng(0)
>>> target = make_target(64, rng)
>>> draft = make_draft(target, 0.75, rng)
>>> round(float(np.minimum(target, draft).sum()), 12)
0.75
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.errors import ConfigError
from paceline.theory.laws import (
    FloatArray,
    check_count,
    check_model,
    check_pair,
    check_unit,
    normalised,
    row_weights,
)

# How peaked the synthetic laws are: below one, few tokens hold most of the mass, as in language models.
CONCENTRATION = 0.5


def make_target(vocab: int, rng: np.random.Generator) -> FloatArray:
    """Return a random context-free target law, float64 [vocab]."""
    check_count(vocab, "vocab", 2, "a law over one token leaves nothing to draft")
    return _random_law(vocab, rng)


def make_markov_target(vocab: int, rng: np.random.Generator) -> FloatArray:
    """Return a random Markov target law, float64 [vocab, vocab]; row t follows token t."""
    check_count(vocab, "vocab", 2, "a law over one token leaves nothing to draft")
    return np.stack([_random_law(vocab, rng) for _ in range(vocab)])


def make_draft(target: npt.ArrayLike, alpha_hint: float, rng: np.random.Generator) -> FloatArray:
    """Return a random draft law of the target's shape whose acceptance is ``alpha_hint``, to rounding.

    Mass 1 - alpha_hint is taken from some tokens and given to others, so that the sum of min(p, q), which is
    the acceptance, is alpha_hint by construction; a Markov target gets it in every row. No law overlaps p by
    less than its smallest probability, so a hint below that raises ``ConfigError``; 0 works where the target
    leaves a token out.
    """
    law = check_model(target, "target")
    alpha = check_unit(alpha_hint, "alpha_hint")
    if law.ndim == 1:
        return _draft_row(law, alpha, rng)
    return np.stack([_draft_row(row, alpha, rng) for row in law])


def measure_alpha(target: npt.ArrayLike, draft: npt.ArrayLike) -> float:
    """Return the acceptance of a draft token, sum of min(p, q), exactly.

    Laws are [V] or [V, V]; rows of a Markov law count as often as the target visits them in the long run.
    """
    p, q = check_pair(target, draft)
    per_row = np.minimum(np.atleast_2d(p), np.atleast_2d(q)).sum(axis=1)
    return float(row_weights(p) @ per_row)


def kl(target: npt.ArrayLike, draft: npt.ArrayLike) -> float:
    """Return the Kullback-Leibler divergence of the target from the draft, in nats per token.

    Infinite where the draft gives probability zero to a token the target can emit. Rows of a Markov law count
    as in :func:`measure_alpha`.
    """
    p, q = (np.atleast_2d(law) for law in check_pair(target, draft))
    with np.errstate(divide="ignore"):
        terms = np.zeros(p.shape)
        np.log(p, out=terms, where=p > 0)
        terms -= np.log(q, out=np.zeros(q.shape), where=p > 0)
    terms[p > 0] *= p[p > 0]
    weights = row_weights(p if len(p) > 1 else p[0])
    visited = weights > 0
    return max(0.0, float(weights[visited] @ terms[visited].sum(axis=1)))


def _random_law(vocab: int, rng: np.random.Generator) -> FloatArray:
    # A floor keeps every token possible: a gamma draw of small shape can underflow to zero.
    return normalised(rng.gamma(CONCENTRATION, size=vocab) + 1e-9)


def _draft_row(p: FloatArray, alpha: float, rng: np.random.Generator) -> FloatArray:
    lost = 1.0 - alpha
    if lost == 0.0:
        return p.copy()
    if alpha < p.min():
        raise ConfigError(
            f"alpha_hint is {alpha:g}, but no draft overlaps this target by less than its smallest "
            f"probability, {p.min():.3g}; raise the hint or use a larger vocabulary"
        )
    gains = _gaining_tokens(p, alpha, rng)
    q = p.copy()
    q[gains] += lost * rng.dirichlet(np.ones(int(gains.sum())))
    q[~gains] -= _take(p[~gains], lost, rng)
    return normalised(np.maximum(q, 0.0))


def _gaining_tokens(p: FloatArray, alpha: float, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Return a random set of tokens whose mass is at most alpha, so that the others can lose 1 - alpha."""
    order = rng.permutation(len(p))
    budget = alpha * rng.uniform(0.3, 0.9)
    gains = np.zeros(len(p), dtype=bool)
    gains[order[np.cumsum(p[order]) <= budget]] = True
    if not gains.any():
        gains[int(p.argmin())] = True
    return gains


def _take(p: FloatArray, mass: float, rng: np.random.Generator) -> FloatArray:
    """Return how much each of ``p`` loses: random shares, none more than it has, ``mass`` in all.

    The loss is min(p, s w) for random weights w, with s solved exactly from the sorted ratios p / w.
    """
    weights = rng.exponential(size=len(p)) * p + 1e-12
    order = np.argsort(p / weights)
    p_sorted, w_sorted = p[order], weights[order]
    emptied = np.concatenate(([0.0], np.cumsum(p_sorted)))  # mass of tokens already taken whole
    remaining = np.concatenate((np.cumsum(w_sorted[::-1])[::-1], [0.0]))
    reached = emptied[:-1] + p_sorted / w_sorted * remaining[:-1]  # taken when token i is just emptied
    first = int(np.searchsorted(reached, mass))
    if first == len(p):
        return p.copy()
    scale = (mass - emptied[first]) / remaining[first]
    loss: FloatArray = np.minimum(p, scale * weights)
    return loss
