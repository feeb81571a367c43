"""What the supported model families have in common with nobody else, as one table.

A family is named as GGUF names its architecture. Everything that a file states itself (dimensions, bases,
windows) is not here.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.models.spec import Activation, RopeStyle


@dataclass(frozen=True, slots=True)
class Family:
    """The fixed traits of one architecture.

    ``gguf_rope_style``: llama's q and k rows are permuted by its converter, so its GGUF files rotate
    neighbouring dims; Hugging Face folders always rotate halves. ``window_period``: with a window, every
    n-th layer attends to everything (0: no layer does). ``scales_embedding``: embedded tokens are multiplied
    by sqrt(hidden size). ``norm_offset``: Hugging Face stores norm weights minus this. ``fused``: q, k, v
    and gate, up are each one tensor in the file.
    """

    activation: Activation
    gguf_rope_style: RopeStyle = "half_split"
    window_period: int = 0
    has_qk_norm: bool = False
    has_post_norms: bool = False
    scales_embedding: bool = False
    norm_offset: float = 0.0
    fused: bool = False
    attention_softcap: float = 0.0
    final_softcap: float = 0.0
    default_window: int = 0
    local_rope_base: float = 0.0


FAMILIES: dict[str, Family] = {
    "llama": Family("silu", gguf_rope_style="interleaved"),
    "qwen2": Family("silu"),
    "qwen3": Family("silu", has_qk_norm=True),
    "phi3": Family("silu", fused=True),
    "gemma2": Family(
        "gelu_tanh",
        window_period=2,
        has_post_norms=True,
        scales_embedding=True,
        norm_offset=1.0,
        attention_softcap=50.0,
        final_softcap=30.0,
        default_window=4096,
    ),
    "gemma3": Family(
        "gelu_tanh",
        window_period=6,
        has_qk_norm=True,
        has_post_norms=True,
        scales_embedding=True,
        norm_offset=1.0,
        local_rope_base=10000.0,
    ),
}


def windows_by_period(num_layers: int, window: int, period: int) -> tuple[int, ...]:
    """Return ``window`` for each layer but every ``period``-th, which gets 0 (none does when it is 0)."""
    return tuple(0 if period and (layer + 1) % period == 0 else window for layer in range(num_layers))
