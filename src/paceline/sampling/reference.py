"""The law of one row of logits, readable: what the native functions behind ``kernels.py`` must equal.

Tokens are ranked by logit, then by lower id. Filters apply in vLLM's order: temperature, min-p, top-k, top-p.
A reference and its native twin agree up to float rounding: probabilities within 1e-12 relative, and the kept
sets are equal, unless a cumulated weight lies within 1e-5 of ``top_p`` times the whole, relatively: the
native function sums the whole in single precision.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.records import FloatArray, TokenLaw
from paceline.sampling.noise import noise_word, uniform_of_word

SMALLEST_EXPONENT = -700.0
"""Weights below exp(-700) of the largest count as zero."""


def weights(logits: FloatArray, temperature: float) -> npt.NDArray[np.float64]:
    """Return exp((logit - max) / temperature), float64 [V]."""
    wide = logits.astype(np.float64)
    exponents = (wide - wide.max()) * (1.0 / temperature)
    return np.where(exponents < SMALLEST_EXPONENT, 0.0, np.exp(np.maximum(exponents, SMALLEST_EXPONENT)))


def filtered_law(logits: FloatArray, temperature: float, top_k: int, top_p: float, min_p: float) -> TokenLaw:
    """Return the law after all filters; ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 switch a filter off."""
    weight = weights(logits, temperature)
    ranking = np.lexsort((np.arange(len(logits)), -logits))
    ranking = ranking[weight[ranking] >= min_p]
    if top_k > 0:
        ranking = ranking[:top_k]
    if top_p < 1.0:
        mass = np.cumsum(weight[ranking])
        ranking = ranking[: int(np.searchsorted(mass, top_p * weight[ranking].sum())) + 1]
    ids = np.sort(ranking[weight[ranking] > 0.0]).astype(np.int32)
    return TokenLaw(ids, weight[ids] / weight[ids].sum())


def coupled_token(law: TokenLaw, key: int) -> int:
    """Return the token that maximises log p + Gumbel noise of (key, token) (Gumbel-max trick)."""
    uniforms = np.array([uniform_of_word(noise_word(key, int(token))) for token in law.ids])
    return int(law.ids[np.argmax(np.log(law.probs) - np.log(-np.log(uniforms)))])


def inverse_token(law: TokenLaw, uniform: float) -> int:
    """Return the first token whose cumulated probability exceeds ``uniform``."""
    index = int(np.searchsorted(np.cumsum(law.probs), uniform, side="right"))
    return int(law.ids[min(index, len(law.ids) - 1)])


def positive_difference(p: TokenLaw, q: TokenLaw, scale: float = 1.0) -> tuple[TokenLaw, float]:
    """Return norm(max(scale·p - q, 0)) and its mass before normalising (Leviathan et al. 2023, residual)."""
    rest = scale * p.probs - np.array([q.prob(int(token)) for token in p.ids])
    keep = rest > 0.0
    mass = float(rest[keep].sum())
    return TokenLaw(p.ids[keep], rest[keep] / mass), mass


def log_sum_exp(logits: FloatArray) -> float:
    """Return log(sum(exp(logits)))."""
    wide = logits.astype(np.float64)
    return float(wide.max() + np.log(np.exp(wide - wide.max()).sum()))


def top_ids(rows: FloatArray, wanted: int) -> npt.NDArray[np.int32]:
    """Return int32 [N, wanted]: ids of the largest logits of each row, best first, lower id first on ties."""
    order = np.argsort(-rows, axis=1, kind="stable")
    return order[:, :wanted].astype(np.int32)
