"""Dimensions of published models, for files of the same shape with random weights (``paceline synth``)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SynthShape:
    """What a published model's config.json says. ``llama3_factor``: Llama 3's rope scaling, 0 for none."""

    architecture: str
    num_layers: int
    hidden_size: int
    ffn_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    context: int
    rope_base: float
    norm_eps: float = 1e-6
    tied: bool = True
    window: int = 0
    llama3_factor: float = 0.0


Sizes = tuple[int, int, int, int, int, int]
"""Layers, hidden size, feed-forward size, heads, key-value heads, dims per head."""


def _llama(sizes: Sizes, tied: bool = True, factor: float = 32.0) -> SynthShape:
    return SynthShape("llama", *sizes, 128256, 131072, 500000.0, 1e-5, tied, llama3_factor=factor)


def _smollm2(sizes: Sizes, rope_base: float) -> SynthShape:
    return SynthShape("llama", *sizes, 49152, 8192, rope_base, 1e-5)


def _qwen3(sizes: Sizes) -> SynthShape:
    return SynthShape("qwen3", *sizes, 151936, 40960, 1000000.0)


def _qwen2(sizes: Sizes) -> SynthShape:
    return SynthShape("qwen2", *sizes, 151936, 32768, 1000000.0)


SYNTH_SHAPES: dict[str, SynthShape] = {
    "smollm2-135m": _smollm2((30, 576, 1536, 9, 3, 64), rope_base=100000.0),
    "smollm2-360m": _smollm2((32, 960, 2560, 15, 5, 64), rope_base=100000.0),
    "smollm2-1.7b": _smollm2((24, 2048, 8192, 32, 32, 64), rope_base=130000.0),
    "llama-3.2-1b": _llama((16, 2048, 8192, 32, 8, 64)),
    "llama-3.2-3b": _llama((28, 3072, 8192, 24, 8, 128)),
    "llama-3.1-8b": _llama((32, 4096, 14336, 32, 8, 128), tied=False, factor=8.0),
    "tinyllama-1.1b": SynthShape("llama", 22, 2048, 5632, 32, 4, 64, 32000, 2048, 10000.0, 1e-5, False),
    "qwen2.5-0.5b": _qwen2((24, 896, 4864, 14, 2, 64)),
    "qwen2.5-1.5b": _qwen2((28, 1536, 8960, 12, 2, 128)),
    "qwen3-0.6b": _qwen3((28, 1024, 3072, 16, 8, 128)),
    "qwen3-1.7b": _qwen3((28, 2048, 6144, 16, 8, 128)),
    "qwen3-4b": _qwen3((36, 2560, 9728, 32, 8, 128)),
    "gemma2-2b": SynthShape("gemma2", 26, 2304, 9216, 8, 4, 256, 256000, 8192, 10000.0, window=4096),
    "gemma3-270m": SynthShape("gemma3", 18, 640, 2048, 4, 1, 256, 262144, 32768, 1000000.0, window=512),
    "gemma3-1b": SynthShape("gemma3", 26, 1152, 6912, 4, 1, 256, 262144, 32768, 1000000.0, window=512),
    "phi3-mini": SynthShape(
        "phi3", 32, 3072, 8192, 32, 32, 96, 32064, 4096, 10000.0, 1e-5, tied=False, window=2047
    ),
}
