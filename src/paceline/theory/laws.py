"""Probability laws as float64 arrays, and the checks that every public function of the theory makes.

A law over a vocabulary of V tokens is a float64 array [V]. A Markov law is [V, V]: row ``t`` is the law of
the token that follows ``t``. A *law function* is the general case: it maps the tokens so far to a law [V].

    >>> float(check_law([0.5, 0.25, 0.25], "target").sum())
    1.0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from paceline.errors import ConfigError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
LawFunction = Callable[[tuple[int, ...]], FloatArray]

# Laws may come from float32 softmaxes; anything further from one than this is a mistake, not rounding.
SUM_TOLERANCE = 1e-6


def check_law(law: npt.ArrayLike, name: str) -> FloatArray:
    """Return ``law`` as float64 [V]; raise ``ConfigError`` unless it is a probability law."""
    array = _float_array(law, name)
    if array.ndim != 1 or array.size == 0:
        raise ConfigError(f"{name} has shape {array.shape}; give one probability per token, shape [V]")
    _check_rows(array[None], name)
    return array


def check_laws(laws: npt.ArrayLike, name: str, rows: int | None = None) -> FloatArray:
    """Return ``laws`` as float64 [R, V], each row a probability law; ``rows`` fixes R."""
    array = _float_array(laws, name)
    if array.ndim != 2 or (array.size == 0 and array.shape[0] != 0) or array.shape[1] == 0:
        raise ConfigError(f"{name} has shape {array.shape}; give one law per row, shape [rows, V]")
    if rows is not None and array.shape[0] != rows:
        raise ConfigError(f"{name} has {array.shape[0]} rows; this draft needs {rows}, one law per position")
    _check_rows(array, name)
    return array


def check_model(laws: npt.ArrayLike, name: str) -> FloatArray:
    """Return ``laws`` as a context-free [V] or a Markov [V, V] law; raise ``ConfigError`` otherwise."""
    array = _float_array(laws, name)
    if array.ndim != 2:
        return check_law(array, name)
    if array.shape[0] != array.shape[1]:
        raise ConfigError(
            f"{name} has shape {array.shape}; a Markov law is square, one row per previous token"
        )
    return check_laws(array, name)


def check_pair(target: npt.ArrayLike, draft: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return target and draft as checked models of one shape (a context-free one is repeated if need be)."""
    p, q = check_model(target, "target"), check_model(draft, "draft")
    if p.shape[-1] != q.shape[-1]:
        raise ConfigError(
            f"target has {p.shape[-1]} tokens but draft has {q.shape[-1]}; both need the same vocabulary"
        )
    if p.ndim != q.ndim:
        shape = (p.shape[-1], p.shape[-1])
        p, q = np.broadcast_to(p, shape), np.broadcast_to(q, shape)
    return p, q


def check_unit(value: float, name: str) -> float:
    """Return ``value`` if it lies in [0, 1]; raise ``ConfigError`` otherwise (NaN included)."""
    if not _is_number(value) or not 0.0 <= value <= 1.0:
        raise ConfigError(f"{name} is {value!r}; give a probability between 0 and 1")
    return float(value)


def check_count(value: int, name: str, least: int, hint: str) -> int:
    """Return ``value`` if it is a whole number of at least ``least``; raise ``ConfigError`` with ``hint``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ConfigError(f"{name} is {value!r}; give a whole number of at least {least} ({hint})")
    return int(value)


def check_length(length: int, name: str = "K") -> int:
    """Return the draft length; zero is legal and means plain decoding."""
    return check_count(length, name, 0, "0 drafts nothing")


def check_cost(value: float, name: str) -> float:
    """Return ``value`` if it is a finite number of at least zero."""
    if not _is_number(value) or not math.isfinite(value) or value < 0:
        raise ConfigError(f"{name} is {value!r}; give a finite cost of at least 0, in 1-row target forwards")
    return float(value)


def check_uniforms(uniforms: npt.ArrayLike, count: int) -> FloatArray:
    """Return ``uniforms`` as float64 [count], each in [0, 1)."""
    array = _float_array(uniforms, "uniforms")
    if array.shape != (count,):
        raise ConfigError(f"uniforms has shape {array.shape}; give {count}: one per draft token and one more")
    if not bool(np.all((array >= 0.0) & (array < 1.0))):
        raise ConfigError("uniforms holds a value outside [0, 1); use rng.random()")
    return array


def check_tokens(tokens: Sequence[int], vocab: int, name: str = "tokens") -> tuple[int, ...]:
    """Return ``tokens`` as ints, each below ``vocab``."""
    ids = tuple(int(token) for token in tokens)
    for index, token in enumerate(ids):
        if not 0 <= token < vocab:
            raise ConfigError(f"{name}[{index}] is {token}; ids of this vocabulary lie in 0..{vocab - 1}")
    return ids


def draw(law: FloatArray, uniform: float) -> int:
    """Return the token at ``uniform`` (in [0, 1)) of the law's cumulative sum.

    ``law`` float64 [V] need not be normalised exactly. A token of probability zero is never returned.
    """
    cumulative = np.cumsum(law)
    index = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    if index == len(law):  # uniform * total rounded up to the total
        index = int(np.flatnonzero(law)[-1])
    return index


def normalised(weights: FloatArray) -> FloatArray:
    """Return non-negative ``weights`` [V] divided by their (positive) sum."""
    result: FloatArray = weights / weights.sum()
    return result


def leftover(p: FloatArray, q: FloatArray, scale: float = 1.0) -> FloatArray:
    """Return norm(max(scale p - q, 0)) for laws [V], or p where nothing is left (``acceptance.residual``)."""
    left = np.maximum(scale * p - q, 0.0)
    return normalised(left) if left.any() else p


def law_function(model: FloatArray, root: int = 0) -> LawFunction:
    """Return the law function of a context-free or Markov law; ``root`` is the token before the first."""
    if model.ndim == 1:
        return lambda context: model
    return lambda context: model[context[-1] if context else root]


def occupation(model: FloatArray, root: int = 0) -> FloatArray:
    """Return the long-run share of steps at which each token is the previous one, float64 [V], from ``root``.

    This is the Cesàro limit of a Markov law [V, V], by doubling: it exists for periodic and reducible chains
    too, where solving for a stationary law would not have one answer.
    """
    share = np.zeros(model.shape[0])
    share[root] = 1.0
    power = model
    for _ in range(48):
        share = (share + share @ power) / 2
        power = power @ power
        power = power / power.sum(axis=1, keepdims=True)  # rounding would grow with the power
    return share


def row_weights(model: FloatArray, root: int = 0) -> FloatArray:
    """Return how much each row of a model counts in the long run: [1] context-free, [V] Markov."""
    return np.ones(1) if model.ndim == 1 else occupation(model, root)


def _float_array(values: npt.ArrayLike, name: str) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} is no rectangular array of numbers ({error}); give floats") from error


def _check_rows(rows: FloatArray, name: str) -> None:
    if np.isnan(rows).any():
        raise ConfigError(f"{name} holds NaN at {_first(np.isnan(rows))}; mask bad logits before the softmax")
    if (rows < 0).any():
        where = _first(rows < 0)
        raise ConfigError(f"{name} is negative at {where}; probabilities are at least 0")
    off = np.abs(rows.sum(axis=1) - 1.0)
    if (off > SUM_TOLERANCE).any() or np.isinf(rows).any():
        total = float(rows[int(np.argmax(off))].sum())
        raise ConfigError(f"{name} sums to {total:.9g}; divide by its sum so that it sums to 1")


def _first(mask: npt.NDArray[np.bool_]) -> str:
    row, token = np.argwhere(mask)[0]
    return f"token {token}" if len(mask) == 1 else f"row {row}, token {token}"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
