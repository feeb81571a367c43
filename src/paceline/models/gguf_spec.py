"""From GGUF metadata to a ``ModelSpec`` and its tensors."""

from __future__ import annotations

import numpy as np

from paceline.errors import ModelFileError, nearest_name
from paceline.models import rope
from paceline.models.families import FAMILIES, Family, windows_by_period
from paceline.models.ggml_types import F32
from paceline.models.gguf_file import GgufHeader
from paceline.models.gguf_source import GgufSource, RowSlice
from paceline.models.metadata import Metadata
from paceline.models.spec import ModelSpec, RopeSpec
from paceline.models.tensor_layout import check_tensors

ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
MAX_LAYERS = 1024
MAX_WIDTH = 1 << 20
# The 27B Gemmas scale q·k by the width per head, not by the head's own size, and no key says so
# (Gemma 2 report, arXiv 2408.00118; llama.cpp tells them by their number of layers too).
_WIDTH_SCALED_LAYERS = {"gemma2": 46, "gemma3": 62}


def load_gguf_spec(header: GgufHeader, max_context: int | None = None) -> tuple[ModelSpec, GgufSource]:
    """Return the spec of a GGUF model and its tensors, fused ones already split.

    ``max_context`` lowers the longest sequence, and chooses between the short and the long factors of
    longrope (see ``_longrope``). Raises ``ModelFileError`` for an architecture that is not supported, a value
    out of range, or tensors that do not fit (all of them in one message).
    """
    architecture = Metadata(header.metadata, header.path).text("general.architecture")
    family = FAMILIES.get(architecture)
    if family is None:
        raise ModelFileError(
            f"{header.path} is a model of architecture {architecture!r}; "
            f"supported are {', '.join(FAMILIES)}{nearest_name(architecture, FAMILIES)}"
        )
    metadata = Metadata(header.metadata, header.path, architecture)
    _refuse_experts(metadata)
    source = GgufSource(header, _splits(metadata, header) if family.fused else {})
    try:
        spec = SpecBuilder(architecture, family, metadata, source).build(max_context)
        check_tensors(spec, source.tensors, ignored=ROPE_TENSORS)
    except BaseException:
        source.close()
        raise
    return spec, source


def _refuse_experts(metadata: Metadata) -> None:
    if metadata.has(".expert_count") and metadata.integer(".expert_count", low=0) > 0:
        raise ModelFileError(f"{metadata.path} is a mixture of experts; only dense models are supported")


def _splits(metadata: Metadata, header: GgufHeader) -> dict[str, list[RowSlice]]:
    """Return how Phi-3's fused tensors fall apart: q, k, v rows in turn, then gate, up rows in turn."""
    heads, kv_heads, head_dim = _head_shape(metadata)
    ffn = metadata.integer(".feed_forward_length", high=MAX_WIDTH)
    parts = {
        "attn_qkv.weight": [
            ("attn_q.weight", heads * head_dim),
            ("attn_k.weight", kv_heads * head_dim),
            ("attn_v.weight", kv_heads * head_dim),
        ],
        "ffn_up.weight": [("ffn_gate.weight", ffn), ("ffn_up.weight", ffn)],
    }
    splits: dict[str, list[RowSlice]] = {}
    for name, tensor in header.tensors.items():
        block, _, last = name.partition(".attn_") if ".attn_" in name else name.partition(".ffn_")
        pieces = parts.get(name[len(block) + 1 :], [])
        if not last or len(tensor.shape) != 2 or tensor.shape[0] != sum(rows for _, rows in pieces):
            continue
        starts = np.cumsum([0, *(rows for _, rows in pieces)])
        splits[name] = [
            RowSlice(f"{block}.{part}", int(start), rows)
            for (part, rows), start in zip(pieces, starts, strict=False)
        ]
    return splits


def _head_shape(metadata: Metadata) -> tuple[int, int, int]:
    """Return (query heads, key-value heads, dims per head)."""
    heads = metadata.integer(".attention.head_count", high=MAX_WIDTH)
    kv_heads = metadata.integer(".attention.head_count_kv", heads, high=heads)
    if heads % kv_heads:
        raise metadata.wrong(".attention.head_count_kv", kv_heads, f"a divisor of the {heads} query heads")
    hidden = metadata.integer(".embedding_length", high=MAX_WIDTH)
    head_dim = metadata.integer(".attention.key_length", max(hidden // heads, 1), high=MAX_WIDTH)
    if metadata.integer(".attention.value_length", head_dim) != head_dim:
        raise metadata.wrong(".attention.value_length", "another size than key_length", str(head_dim))
    return heads, kv_heads, head_dim


class SpecBuilder:
    def __init__(self, architecture: str, family: Family, metadata: Metadata, source: GgufSource) -> None:
        self._architecture = architecture
        self._family = family
        self._metadata = metadata
        self._source = source
        self._heads, self._kv_heads, self._head_dim = _head_shape(metadata)
        self._num_layers = metadata.integer(".block_count", high=MAX_LAYERS)
        self._hidden = metadata.integer(".embedding_length", high=MAX_WIDTH)

    def build(self, max_context: int | None) -> ModelSpec:
        metadata, family = self._metadata, self._family
        windows = self._windows()
        ropes, context = self._ropes(max_context)
        has_local_rope = len(ropes) > 1
        tensors = self._source.tensors
        embedding = tensors.get("token_embd.weight")
        return ModelSpec(
            architecture=self._architecture,
            name=metadata.text("general.name", metadata.path.stem),
            num_layers=self._num_layers,
            hidden_size=self._hidden,
            num_heads=self._heads,
            num_kv_heads=self._kv_heads,
            head_dim=self._head_dim,
            ffn_size=metadata.integer(".feed_forward_length", high=MAX_WIDTH),
            vocab_size=embedding.shape[0] if embedding else metadata.integer(".vocab_size"),
            max_context=context,
            norm_eps=metadata.number(".attention.layer_norm_rms_epsilon"),
            activation=family.activation,
            ropes=ropes,
            layer_ropes=tuple(int(has_local_rope and window > 0) for window in windows),
            layer_windows=windows,
            attention_scale=self._attention_scale(),
            attention_softcap=self._softcap(".attn_logit_softcapping", family.attention_softcap),
            final_softcap=self._softcap(".final_logit_softcapping", family.final_softcap),
            embedding_scale=self._hidden**0.5 if family.scales_embedding else 1.0,
            tied_head="output.weight" not in tensors,
            has_qkv_bias="blk.0.attn_q.bias" in tensors,
            has_qk_norm=family.has_qk_norm,
            has_post_norms=family.has_post_norms,
        )

    def _softcap(self, key: str, default: float) -> float:
        return self._metadata.number(key, default, positive=False) if self._metadata.has(key) else default

    def _attention_scale(self) -> float:
        if self._metadata.has(".attention.scale"):
            return self._metadata.number(".attention.scale")
        if _WIDTH_SCALED_LAYERS.get(self._architecture) == self._num_layers:
            return float((self._hidden / self._heads) ** -0.5)
        return float(self._head_dim**-0.5)

    def _windows(self) -> tuple[int, ...]:
        """Return each layer's sliding window; a file without the key has none unless the family has."""
        metadata, family = self._metadata, self._family
        window = metadata.integer(".attention.sliding_window", family.default_window, low=0)
        period = family.window_period
        pattern = metadata.values.get(f"{self._architecture}.attention.sliding_window_pattern")
        if isinstance(pattern, np.ndarray):
            if len(pattern) < self._num_layers:
                raise metadata.wrong(".attention.sliding_window_pattern", pattern, "an entry for each layer")
            return tuple(window if slides else 0 for slides in pattern[: self._num_layers].tolist())
        if pattern is not None:
            period = metadata.integer(".attention.sliding_window_pattern")
        elif window and self._architecture.startswith("qwen"):
            raise ModelFileError(
                f"{metadata.path} states a sliding window but not which layers have it "
                "(attention.sliding_window_pattern): convert it again"
            )
        return windows_by_period(self._num_layers, window, period)

    # ---- rope ----

    def _ropes(self, max_context: int | None) -> tuple[tuple[RopeSpec, ...], int]:
        """Return the ropes (the second is for layers with a window, in families that have it) and context."""
        metadata, family = self._metadata, self._family
        dims = metadata.integer(".rope.dimension_count", self._head_dim, high=self._head_dim)
        if dims % 2:
            raise metadata.wrong(".rope.dimension_count", dims, "an even number")
        context = metadata.integer(".context_length")
        frequencies, factor, context = self._scaled(dims, context, max_context)
        context = min(context, max_context or context)
        ropes = [RopeSpec(tuple(frequencies.tolist()), family.gguf_rope_style, factor)]
        if family.local_rope_base:
            base = metadata.number(".rope.freq_base_swa", family.local_rope_base)
            local = rope.plain_frequencies(base, dims)
            ropes.append(RopeSpec(tuple(local.tolist()), family.gguf_rope_style))
        return tuple(ropes), context

    def _scaled(
        self, dims: int, context: int, max_context: int | None
    ) -> tuple[rope.Frequencies, float, int]:
        """Return frequencies, attention factor and context after the scaling the file asks for."""
        metadata = self._metadata
        base = metadata.number(".rope.freq_base", 10000.0)
        plain = rope.plain_frequencies(base, dims)
        attention_factor = metadata.number(".rope.scaling.attn_factor", 1.0)
        if "rope_factors_long.weight" in self._source.tensors:
            return self._longrope(plain, attention_factor, context, max_context)
        if "rope_freqs.weight" in self._source.tensors:
            return plain / self._factors("rope_freqs.weight", dims), attention_factor, context
        legacy = metadata.number(".rope.scale_linear", 1.0)
        kind = metadata.text(".rope.scaling.type", "linear" if legacy != 1.0 else "none")
        factor = metadata.number(".rope.scaling.factor", legacy)
        if kind == "none":
            return plain, attention_factor, context
        if kind == "linear":
            return rope.linear_frequencies(plain, factor), attention_factor, context
        if kind == "yarn":
            original = metadata.integer(".rope.scaling.original_context_length", context)
            scaling = rope.YarnScaling(
                factor,
                original,
                metadata.number(".rope.scaling.yarn_beta_fast", 32.0),
                metadata.number(".rope.scaling.yarn_beta_slow", 1.0),
            )
            attention_factor *= rope.yarn_attention_factor(factor)
            return rope.yarn_frequencies(plain, base, scaling), attention_factor, context
        raise metadata.wrong(".rope.scaling.type", kind, "none, linear, yarn, or longrope with its factors")

    def _longrope(
        self, plain: rope.Frequencies, attention_factor: float, context: int, max_context: int | None
    ) -> tuple[rope.Frequencies, float, int]:
        """Choose longrope's factors by the context that is asked for, once.

        The paper switches factors when a sequence outgrows the original context, which would change the keys
        already stored; a fixed choice keeps a token's logits a function of its tokens (design.md, law 7).
        Without a wish the original context and its short factors are taken.
        """
        original = self._metadata.integer(".rope.scaling.original_context_length", context)
        wanted = max_context or original
        name = "rope_factors_long.weight" if wanted > original else "rope_factors_short.weight"
        return plain / self._factors(name, 2 * len(plain)), attention_factor, min(wanted, context)

    def _factors(self, name: str, dims: int) -> rope.Frequencies:
        info = self._source.tensors.get(name)
        if info is None or info.shape != (dims // 2,) or info.ggml_type != F32.number:
            found = "missing" if info is None else f"{list(info.shape)} of type number {info.ggml_type}"
            raise ModelFileError(f"{self._metadata.path}: {name} is {found}, expected F32 [{dims // 2}]")
        factors = self._source.read_rows(name, 0, 1).view("<f4").astype(np.float64)
        if not (np.isfinite(factors).all() and (factors > 0).all()):
            raise ModelFileError(f"{self._metadata.path}: {name} holds values that are not positive numbers")
        return factors
