"""Exact acceptance rules for chains: the readable reference for the engine's fast ones.

Shapes are the same everywhere. A chain of K drafted ``tokens`` comes with the target laws ``p`` [K + 1, V]
(row i is the law of the token that follows i accepted ones) and the draft laws ``q`` [K, V] (row i is the law
that ``tokens[i]`` was drawn from), both after the same processors. ``uniforms`` [K + 1] lie in [0, 1): entry
i decides about ``tokens[i]``, the last one draws the recovered or bonus token. K = 0 is plain decoding.

    >>> p, q = np.array([[0.5, 0.5], [0.1, 0.9]]), np.array([[0.2, 0.8]])
    >>> speculative_step(p, q, [1], [0.7, 0.3]).tokens  # 0.7 >= 0.5 / 0.8: rejected; p - q leaves 0
    (0,)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from paceline.errors import ConfigError
from paceline.theory.chance import Chance, UniformChance
from paceline.theory.coupling import coupled_token
from paceline.theory.laws import FloatArray, check_law, check_laws, check_tokens, check_uniforms, leftover


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one verify step emits: the accepted draft tokens and exactly one more.

    ``bonus``: the one more followed full acceptance (otherwise it was recovered after a rejection).
    """

    accepted: tuple[int, ...]
    extra: int
    bonus: bool

    @property
    def tokens(self) -> tuple[int, ...]:
        """All tokens of the step in order; 1 to K + 1 of them."""
        return (*self.accepted, self.extra)


class Rule(Protocol):
    """An acceptance rule for a sampled chain, on checked arguments."""

    def __call__(
        self, p: FloatArray, q: FloatArray, tokens: tuple[int, ...], chance: Chance
    ) -> StepOutcome: ...


def accept_probability(p: npt.ArrayLike, q: npt.ArrayLike, token: int) -> float:
    """Return min(1, p(token) / q(token)) for laws [V]: how likely the rejection rule keeps ``token``.

    Source: Leviathan, Kalman, Matias 2023 (arXiv 2211.17192); Chen et al. 2023 (arXiv 2302.01318). Raises
    ``ConfigError`` where q(token) = 0: such a token cannot have been drawn from q.
    """
    target, draft = _check_two(p, q)
    (token,) = check_tokens([token], len(target), "token")
    _check_drawn(draft[None], (token,))
    return _accept_probability(target, draft, token)


def residual(p: npt.ArrayLike, q: npt.ArrayLike) -> FloatArray:
    """Return norm(max(p - q, 0)) for laws [V]: the law of the recovered token after a rejection.

    Where p = q a rejection has probability zero and nothing is left to normalise; p itself is returned, so
    that a rejection caused by rounding still draws from the target.
    """
    return leftover(*_check_two(p, q))


def overlap(p: npt.ArrayLike, q: npt.ArrayLike) -> float:
    """Return the acceptance of a draft token, sum of min(p, q) = 1 - total variation, for laws [V]."""
    target, draft = _check_two(p, q)
    return float(np.minimum(target, draft).sum())


def greedy_step(p: npt.ArrayLike, tokens: Sequence[int]) -> StepOutcome:
    """Accept while the draft equals the target's argmax (lowest id on a tie); ``p`` [K + 1, V].

    Law of the output: the point mass on the target's greedy text, whatever was drafted.
    """
    laws = check_laws(p, "p", len(tokens) + 1)
    return _first_difference(check_tokens(tokens, laws.shape[1]), [int(law.argmax()) for law in laws])


def speculative_step(
    p: npt.ArrayLike, q: npt.ArrayLike, tokens: Sequence[int], uniforms: npt.ArrayLike
) -> StepOutcome:
    """Verify a sampled chain by rejection; see :func:`accept_probability` and :func:`residual`.

    ``p`` [K + 1, V], ``q`` [K, V], ``tokens`` K ids, ``uniforms`` [K + 1]. A pure function. Raises
    ``ConfigError`` for arrays that are no laws or do not fit together.
    """
    return rejection_rule(
        *check_chain(p, q, tokens), UniformChance(check_uniforms(uniforms, len(tokens) + 1))
    )


def block_verification_step(
    p: npt.ArrayLike, q: npt.ArrayLike, tokens: Sequence[int], uniforms: npt.ArrayLike
) -> StepOutcome:
    """Verify a sampled chain as one block (Sun et al. 2024, arXiv 2403.10444).

    Arguments as for :func:`speculative_step`. The law is exact too, and the expected number of accepted
    tokens is never lower.
    """
    return block_rule(*check_chain(p, q, tokens), UniformChance(check_uniforms(uniforms, len(tokens) + 1)))


def coupled_step(p: npt.ArrayLike, tokens: Sequence[int], noise: npt.ArrayLike) -> StepOutcome:
    """Keep draft tokens while they equal the target's own draws under shared noise.

    ``p`` [K + 1, V]; ``noise`` float64 [K + 1, V]: row i is ``gumbel_noise(seed, position + i, V)`` where
    ``position`` is that of the first drafted token. The target's draw is argmax(log p + noise), so the output
    depends on the target, the seed and the position alone, never on the draft.
    """
    laws = check_laws(p, "p", len(tokens) + 1)
    gumbel = np.asarray(noise, dtype=np.float64)
    if gumbel.shape != laws.shape:
        raise ConfigError(f"noise has shape {gumbel.shape}; give one row per law, shape {laws.shape}")
    if np.isnan(gumbel).any():
        raise ConfigError("noise holds NaN; use gumbel_noise(seed, position, vocab)")
    drawn = [coupled_token(law, row) for law, row in zip(laws, gumbel, strict=True)]
    return _first_difference(check_tokens(tokens, laws.shape[1]), drawn)


def rejection_rule(p: FloatArray, q: FloatArray, tokens: tuple[int, ...], chance: Chance) -> StepOutcome:
    """The rule of :func:`speculative_step` on checked arguments and any source of chance."""
    last = len(tokens)
    for i, token in enumerate(tokens):
        if not chance.accept(_accept_probability(p[i], q[i], token), i):
            return StepOutcome(tokens[:i], chance.draw(leftover(p[i], q[i]), last), bonus=False)
    return StepOutcome(tokens, chance.draw(p[last], last), bonus=True)


def block_rule(p: FloatArray, q: FloatArray, tokens: tuple[int, ...], chance: Chance) -> StepOutcome:
    """The rule of :func:`block_verification_step` on checked arguments and any source of chance.

    Independent coins with probabilities h_i; the largest i whose coin says yes is the accepted length, so
    asking from the longest down and stopping at the first yes is the same.
    """
    last = len(tokens)
    running, kept = block_probabilities(p, q, tokens)
    for i in range(last, 0, -1):
        if chance.accept(kept[i - 1], i - 1):
            break
    else:
        i = 0
    if i == last:
        return StepOutcome(tokens, chance.draw(p[last], last), bonus=True)
    return StepOutcome(tokens[:i], chance.draw(leftover(p[i], q[i], running[i]), last), bonus=False)


def block_probabilities(
    p: FloatArray, q: FloatArray, tokens: tuple[int, ...]
) -> tuple[list[float], list[float]]:
    """Return p_0..p_K and h_1..h_K of block verification (design.md §5).

    p_0 = 1, p_i = min(1, p_(i-1) P(x_i) / Q(x_i)); Z_(i+1) = sum of max(p_i P - Q, 0) after i accepted
    tokens; h_i = Z_(i+1) / (Z_(i+1) + 1 - p_i) and h_K = p_K.
    """
    running = [1.0]
    kept: list[float] = []
    for i, token in enumerate(tokens):
        running.append(min(1.0, running[-1] * float(p[i, token]) / float(q[i, token])))
        if i + 1 == len(tokens):
            kept.append(running[-1])
            break
        left = float(np.maximum(running[-1] * p[i + 1] - q[i + 1], 0.0).sum())
        missing = 1.0 - running[-1]
        # 0 / 0 means p_i = 1 and P = Q next, and then the coin of i + 1 says yes whatever this one says.
        kept.append(left / (left + missing) if left + missing > 0.0 else 1.0)
    return running, kept


def check_chain(
    p: npt.ArrayLike, q: npt.ArrayLike, tokens: Sequence[int]
) -> tuple[FloatArray, FloatArray, tuple[int, ...]]:
    """Return ``p`` [K + 1, V], ``q`` [K, V] and ``tokens`` [K] checked for each other."""
    target = check_laws(p, "p", len(tokens) + 1)
    if len(tokens) == 0:  # an empty list of laws has no second axis to compare
        return target, np.empty((0, target.shape[1])), ()
    draft = check_laws(q, "q", len(tokens))
    if target.shape[1] != draft.shape[1]:
        raise ConfigError(
            f"p covers {target.shape[1]} tokens but q {draft.shape[1]}; both need the same vocabulary"
        )
    ids = check_tokens(tokens, target.shape[1])
    _check_drawn(draft, ids)
    return target, draft, ids


def _check_drawn(q: FloatArray, tokens: tuple[int, ...]) -> None:
    for i, token in enumerate(tokens):
        if q[i, token] == 0.0:
            raise ConfigError(
                f"draft token {token} at depth {i + 1} has q = 0, so it was drawn from another law; "
                "pass the law after the very filters it was drawn through"
            )


def _check_two(p: npt.ArrayLike, q: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    target, draft = check_law(p, "p"), check_law(q, "q")
    if len(target) != len(draft):
        raise ConfigError(f"p has {len(target)} tokens but q {len(draft)}; both need the same vocabulary")
    return target, draft


def _accept_probability(p: FloatArray, q: FloatArray, token: int) -> float:
    return min(1.0, float(p[token]) / float(q[token]))


def _first_difference(tokens: tuple[int, ...], drawn: list[int]) -> StepOutcome:
    for i, token in enumerate(tokens):
        if token != drawn[i]:
            return StepOutcome(tokens[:i], drawn[i], bonus=False)
    return StepOutcome(tokens, drawn[-1], bonus=True)
