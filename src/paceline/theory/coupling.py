"""Shared noise: draws that depend on the law, the seed and the position alone.

The Gumbel-max trick: argmax(log p + g) with independent Gumbel noise g has the law p. When the drafter draws
with the same g, its token equals the target's as often as this function of the two laws allows:

    P(both draw x) = 1 / sum over y of max(p_y / p_x, q_y / q_x)
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from paceline.errors import ConfigError
from paceline.theory.laws import FloatArray, check_count, check_law


def gumbel_noise(seed: int, position: int, vocab: int) -> FloatArray:
    """Return the Gumbel noise of (seed, position), float64 [vocab].

    Counter-based (Philox, Salmon et al. 2011): the position is the high word of the counter, so positions
    never share numbers, and the noise of one position can be made without that of any other.
    """
    check_count(vocab, "vocab", 1, "noise is one number per token")
    for name, value in (("seed", seed), ("position", position)):
        if check_count(value, name, 0, "below 2**64") >= 1 << 64:
            raise ConfigError(f"{name} is {value}; give a whole number below 2**64")
    counter = np.array([0, 0, 0, position], dtype=np.uint64)
    bits = np.random.Philox(key=np.array([seed, 0], dtype=np.uint64), counter=counter).random_raw(vocab)
    # 52 bits and a half step: strictly between 0 and 1, so both logarithms are finite.
    uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    noise: FloatArray = -np.log(-np.log(uniform))
    return noise


def coupled_token(p: FloatArray, noise: FloatArray) -> int:
    """Return argmax(log p + noise) for a law [V] and noise [V]; tokens of probability zero never win."""
    score = np.full(len(p), -np.inf)
    np.log(p, out=score, where=p > 0)
    return int((score + noise).argmax())


def coupled_pair_law(p: npt.ArrayLike, q: npt.ArrayLike) -> FloatArray:
    """Return the joint law [V, V] of (target's draw, drafter's draw) under shared noise, in closed form.

    With exponential clocks E = exp(-g), the target draws argmin E / p and the drafter argmin E / q. Given the
    two winners' clocks E_x = a and E_y = t a, every other clock z must exceed a max(p_z / p_x, t q_z / q_y),
    so P(x, y) is the integral of dt / D(t)^2 with D piecewise linear, done exactly piece by piece. The
    marginals are p and q, which the tests hold to 1e-12; the trace is the acceptance.
    """
    target, draft = check_law(p, "p"), check_law(q, "q")
    if len(target) != len(draft):
        raise ConfigError(f"p has {len(target)} tokens but q {len(draft)}; both need the same vocabulary")
    law = np.zeros((len(target), len(target)))
    for x in np.flatnonzero(target):
        for y in np.flatnonzero(draft):
            law[x, y] = _same(target, draft, int(x)) if x == y else _apart(target, draft, int(x), int(y))
    return law


def _same(p: FloatArray, q: FloatArray, token: int) -> float:
    return float(1.0 / np.maximum(p / p[token], q / q[token]).sum())


def _apart(p: FloatArray, q: FloatArray, x: int, y: int) -> float:
    """Return P(target draws x, drafter draws y), x != y; t runs over the ratio of the two winners' clocks."""
    low = p[y] / p[x]  # y loses to x at the target
    high = q[y] / q[x] if q[x] > 0 else np.inf  # x loses to y at the drafter
    if low >= high:
        return 0.0
    slope, level = q / q[y], p / p[x]  # clock z must exceed max(level, t * slope)
    level[x], slope[x] = 1.0, 0.0  # the winners' own clocks: a, and t * a
    level[y], slope[y] = 0.0, 1.0
    bends = level[slope > 0] / slope[slope > 0]
    knots = np.concatenate(([low], np.sort(bends[(bends > low) & (bends < high)]), [high]))
    total = 0.0
    for left, right in pairwise(knots.tolist()):
        inside = 2 * left + 1.0 if np.isinf(right) else (left + right) / 2
        steep = slope * inside > level
        constant, gradient = float(level[~steep].sum()), float(slope[steep].sum())
        total += _integral(constant, gradient, left, right)
    return total


def _integral(constant: float, gradient: float, left: float, right: float) -> float:
    """Return the integral of dt / (constant + gradient t)^2 from ``left`` to ``right`` (maybe infinite)."""
    at_left = constant + gradient * left
    if np.isinf(right):
        return 1.0 / (gradient * at_left)
    return (right - left) / (at_left * (constant + gradient * right))
