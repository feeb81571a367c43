"""The native sampling functions behind one thin Python function each.

Their meaning is written out in :mod:`paceline.sampling.reference`. Logits are float32 [V], C-contiguous. All
raise ``ValueError`` when a row holds NaN or leaves no token possible; the two that choose from a model's
logits raise ``LogitsError``: damaged weights, and parameters that mask everything, are no bugs of ours.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from paceline.errors import LogitsError
from paceline.native import _core
from paceline.records import FloatArray, IntArray, TokenLaw

_native = _core.sampling


@lru_cache(maxsize=4)
def _whole_vocabulary(size: int) -> IntArray:
    ids = np.arange(size, dtype=np.int32)
    ids.flags.writeable = False
    return ids


def _to_law(ids: IntArray | None, probs: npt.NDArray[np.float64]) -> TokenLaw:
    return TokenLaw(_whole_vocabulary(len(probs)) if ids is None else ids, probs)


def argmax(logits: FloatArray) -> int:
    """Return the most likely token, the lowest id on ties."""
    try:
        return _native.argmax(logits)
    except ValueError as error:
        raise _no_token(error) from error


def filtered_law(logits: FloatArray, temperature: float, top_k: int, top_p: float, min_p: float) -> TokenLaw:
    """Return the law after temperature, min-p, top-k and top-p (0, 1 and 0 switch the last three off)."""
    try:
        return _to_law(*_native.filtered_law(logits, temperature, min(top_k, len(logits)), top_p, min_p))
    except ValueError as error:
        raise _no_token(error) from error


def _no_token(error: ValueError) -> LogitsError:
    return LogitsError(
        f"no token can be chosen: {error}. Fetch the model again, or lower min_tokens (it masks stop ids)"
    )


def coupled_token(law: TokenLaw, key: int) -> int:
    """Return the token that maximises log p + Gumbel noise belonging to (key, token)."""
    return int(law.ids[_native.coupled_index(law.ids, law.probs, key)])


def inverse_token(law: TokenLaw, uniform: float) -> int:
    """Return the token at which the cumulated probability passes ``uniform`` in [0, 1)."""
    return int(law.ids[_native.inverse_index(law.probs, uniform)])


def positive_difference(p: TokenLaw, q: TokenLaw, scale: float = 1.0) -> tuple[TokenLaw, float]:
    """Return norm(max(scale·p - q, 0)) and its mass before normalising; an empty law when the mass is 0."""
    (ids, probs), mass = _native.positive_difference(p.ids, p.probs, q.ids, q.probs, scale)
    return TokenLaw(ids, probs), mass


def positive_mass(p: TokenLaw, q: TokenLaw, scale: float = 1.0) -> float:
    """Return the mass of max(scale·p - q, 0), to a few ulps of ``scale``, without making that law."""
    return _native.positive_mass(p.ids, p.probs, q.ids, q.probs, scale)


def log_sum_exp(logits: FloatArray) -> float:
    """Return log(sum(exp(logits)))."""
    return _native.log_sum_exp(logits)


def top_ids(rows: FloatArray, wanted: int) -> IntArray:
    """Return int32 [N, wanted]: ids of the largest of float32 [N, V], best first, lower id first on ties."""
    return _native.top_ids(rows, wanted)
