"""Inverse frequencies of rotary position embeddings, with every scaling the supported models use.

All functions work in float64 and return radians per position, one value per rotated pair of dims.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Frequencies = npt.NDArray[np.float64]


def plain_frequencies(base: float, dims: int) -> Frequencies:
    """Return ``base ** (-2 i / dims)`` for i in 0 … dims/2 - 1 (Su et al. 2021, arXiv 2104.09864, §3.2)."""
    return np.power(float(base), -np.arange(0, dims, 2, dtype=np.float64) / dims)


def linear_frequencies(plain: Frequencies, factor: float) -> Frequencies:
    """Stretch positions by ``factor`` (Chen et al. 2023, arXiv 2306.15595)."""
    return plain / factor


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """The constants of Llama 3.1's frequency scaling."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


def llama3_frequencies(plain: Frequencies, scaling: Llama3Scaling) -> Frequencies:
    """Slow the low frequencies by ``factor``, keep the high ones, blend between (Llama 3.1 model card).

    With wavelength w = 2π/f and s = (context/w - low) / (high - low), clipped to 0 … 1, the result is
    (1 - s) f / factor + s f.
    """
    turns = scaling.original_context * plain / (2 * math.pi)
    smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    smooth = np.clip(smooth, 0.0, 1.0)
    return (1 - smooth) * plain / scaling.factor + smooth * plain


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """The constants of YaRN (Peng et al. 2023, arXiv 2309.00071)."""

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0


def yarn_frequencies(plain: Frequencies, base: float, scaling: YarnScaling) -> Frequencies:
    """Interpolate slow dims, keep fast ones, with a linear ramp between (arXiv 2309.00071, §3.2)."""
    dims = 2 * len(plain)

    def dim_turning(turns: float) -> float:
        return dims * math.log(scaling.original_context / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(dim_turning(scaling.beta_fast)), 0)
    high = min(math.ceil(dim_turning(scaling.beta_slow)), dims - 1)
    ramp = np.clip((np.arange(len(plain)) - low) / max(high - low, 1e-3), 0.0, 1.0)
    return plain / scaling.factor * ramp + plain * (1 - ramp)


def yarn_attention_factor(factor: float) -> float:
    """Return 0.1 ln(factor) + 1, the factor on cosine and sine (arXiv 2309.00071, eq. 22)."""
    return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0


def longrope_attention_factor(factor: float, original_context: int) -> float:
    """Return sqrt(1 + ln(factor) / ln(original context)) (Ding et al. 2024, arXiv 2402.13753, §3)."""
    return math.sqrt(1 + math.log(factor) / math.log(original_context)) if factor > 1 else 1.0
