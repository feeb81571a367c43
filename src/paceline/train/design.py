"""The shape of the head that is trained for a target."""

from __future__ import annotations

from paceline.models.eagle3_spec import Eagle3Spec
from paceline.models.rope import plain_frequencies
from paceline.models.spec import ModelSpec, RopeSpec

ROPE_BASE = 10000.0
"""Of a head's own rotation. A head looks at what is near; the longer base of most targets would turn few of
its pairs."""


def head_spec(
    target: ModelSpec,
    draft_vocab_size: int,
    state_layers: tuple[int, ...],
    *,
    num_layers: int = 1,
    ffn_size: int | None = None,
) -> Eagle3Spec:
    """Return a head of the target's own width and attention shape; ``ffn_size`` too unless given."""
    frequencies = plain_frequencies(ROPE_BASE, target.head_dim)
    return Eagle3Spec(
        name=f"{target.name} eagle3",
        hidden_size=target.hidden_size,
        target_hidden_size=target.hidden_size,
        num_layers=num_layers,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        ffn_size=ffn_size or target.ffn_size,
        vocab_size=target.vocab_size,
        draft_vocab_size=draft_vocab_size,
        max_context=target.max_context,
        norm_eps=target.norm_eps,
        rope=RopeSpec(tuple(frequencies.tolist()), "half_split"),
        layer_windows=(0,) * num_layers,
        num_states=len(state_layers),
        state_layers=state_layers,
    )
