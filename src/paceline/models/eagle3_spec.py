"""What an EAGLE-3 head is, as data (Li et al. 2025, arXiv 2503.01840), whatever file it came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.models.spec import RopeSpec, TensorSource
from paceline.records import IntArray


@dataclass(frozen=True, slots=True)
class Eagle3Spec:
    """One EAGLE-3 head.

    H = ``hidden_size``, Ht = ``target_hidden_size``, V = ``vocab_size`` (the target's), Vd =
    ``draft_vocab_size``. ``state_layers``: the target layers whose *inputs* are captured, 0-based, in the
    order in which they are concatenated; the number L of target layers stands for the output of the last one
    (before the final norm). ``None``: 2, L // 2, L - 3 of whatever target the head is used with.
    ``num_layers``: decoder layers of the head; only the first one reads 2 H columns. ``layer_windows``
    [num_layers]: sliding window in tokens, 0 for full attention.

    The first layer's residual is the projected state before ``hidden_norm``, after it when
    ``norm_before_residual``. The state fed back to the next draft step is the last layer's output before the
    final norm, after it when ``norm_output``. ``has_input_norm``: one norm over the concatenated states
    [n * Ht] before fc (``norm_before_fc``); ``has_state_norms``: one norm per captured state (``fc_norm``).
    ``has_embedding``, ``has_head``: the head brings its own; otherwise the target's embedding and the
    target's head rows of the draft vocabulary are used. ``has_output_bias``: ``blk.N.attn_output.bias`` [H]
    (Llama's ``attention_bias`` puts one on each of q, k, v and o).
    """

    name: str
    hidden_size: int
    target_hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    draft_vocab_size: int
    max_context: int
    norm_eps: float
    rope: RopeSpec
    layer_windows: tuple[int, ...]
    num_states: int = 3
    state_layers: tuple[int, ...] | None = None
    norm_before_residual: bool = False
    norm_output: bool = False
    has_input_norm: bool = False
    has_state_norms: bool = False
    has_embedding: bool = False
    has_head: bool = True
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    has_qk_norm: bool = False

    def layers_of(self, num_target_layers: int) -> tuple[int, ...]:
        """Return the captured layers' ids for a target of ``num_target_layers`` layers."""
        if self.state_layers is not None:
            return self.state_layers
        return (2, num_target_layers // 2, num_target_layers - 3)


@dataclass(frozen=True, slots=True)
class Eagle3Files:
    """A head that was opened: its spec, its tensors, its draft vocabulary.

    ``source``: names ``fc.weight`` [H, n * Ht], ``output_norm.weight`` [H], ``output.weight`` [Vd, H] (absent
    without ``has_head``), ``token_embd.weight`` [V, H] (absent without ``has_embedding``),
    ``input_norm.weight`` [n * Ht], ``fc_norm.I.weight`` [Ht], and per layer the names of
    :class:`~paceline.models.spec.TensorSource`, where ``blk.0.attn_norm`` normalises the embedding,
    ``blk.0.attn_norm_2`` the state, and ``blk.0.attn_q|k|v`` have 2 H columns (embedding first).
    ``draft_to_target`` int32 [Vd]: absolute target id of each draft id, rising. ``read_tokens`` returns the
    text of each target id as the tokenizer that lies with the head spells it; ``None``: none lies with it.
    """

    spec: Eagle3Spec
    source: TensorSource
    draft_to_target: IntArray
    read_tokens: Callable[[], Sequence[str]] | None = None
