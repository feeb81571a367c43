"""Rotary embeddings as config.json files state them, in the old form and in transformers 5's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.errors import ModelFileError
from paceline.models import rope
from paceline.models.metadata import Metadata
from paceline.models.spec import RopeSpec

if TYPE_CHECKING:
    from paceline.models.hf_config import HfConfig


def build_ropes(config: HfConfig, max_context: int | None) -> tuple[tuple[RopeSpec, ...], int]:
    """Return the ropes (for Gemma 3 a second one, for layers with a window) and the longest context."""
    settings = _settings(config)
    context = config.fields.integer("max_position_embeddings")
    is_split = "full_attention" in settings
    main = settings["full_attention"] if is_split else settings
    if not isinstance(main, dict):
        raise config.fields.wrong("rope_parameters.full_attention", main, "a table")
    default_base = 1000000.0 if config.architecture == "gemma3" else 10000.0
    base = _number(config, "rope_theta", main, "rope_theta", default_base)
    builder = _RopeBuilder(config, main, base, context)
    frequencies, factor, context = builder.build(max_context)
    ropes = [RopeSpec(tuple(frequencies.tolist()), "half_split", factor)]
    if config.family.local_rope_base:
        local = settings.get("sliding_attention", {}) if is_split else {}
        if local.get("rope_type", "default") != "default":
            raise config.fields.wrong("rope_parameters.sliding_attention", local, "rope_type 'default'")
        local_base = _number(
            config, "rope_theta", local, "rope_local_base_freq", config.family.local_rope_base
        )
        ropes.append(RopeSpec(tuple(rope.plain_frequencies(local_base, builder.dims).tolist()), "half_split"))
    return tuple(ropes), min(context, max_context or context)


def _number(config: HfConfig, key: str, settings: Mapping[str, Any], outer_key: str, default: float) -> float:
    """Return ``key`` of the rope settings, else ``outer_key`` of the whole config, else ``default``."""
    if settings.get(key) is not None:
        return Metadata(settings, config.path).number(key)
    return config.fields.number(outer_key, default)


def _settings(config: HfConfig) -> Mapping[str, Any]:
    """Return the table of rope settings, empty when the file has none."""
    for key in ("rope_parameters", "rope_scaling"):
        value = config.values.get(key)
        if value is not None:
            if not isinstance(value, dict):
                raise config.fields.wrong(key, value, "a table")
            return value
    return {}


class _RopeBuilder:
    def __init__(self, config: HfConfig, settings: Mapping[str, Any], base: float, context: int) -> None:
        values = {key: value for key, value in settings.items() if value is not None}
        self._fields = Metadata(values, config.path)
        self._config = config
        self._context = context
        self._base = base
        share = _number(config, "partial_rotary_factor", values, "partial_rotary_factor", 1.0)
        self.dims = int(config.head_dim * share)
        if self.dims < 2 or self.dims % 2 or self.dims > config.head_dim:
            raise config.fields.wrong("partial_rotary_factor", share, "an even number of rotated dims")
        self._plain = rope.plain_frequencies(base, self.dims)

    def build(self, max_context: int | None) -> tuple[rope.Frequencies, float, int]:
        fields, plain, context = self._fields, self._plain, self._context
        kind = fields.text("rope_type", fields.text("type", "default"))
        if kind == "default":
            return plain, 1.0, context
        if kind == "linear":
            return rope.linear_frequencies(plain, fields.number("factor")), 1.0, context
        if kind == "llama3":
            return rope.llama3_frequencies(plain, self._llama3()), 1.0, context
        if kind == "yarn" and self._config.architecture != "phi3":
            return self._yarn()
        if kind in ("longrope", "su", "yarn"):
            return self._longrope(max_context)
        raise fields.wrong("rope_type", kind, "default, linear, llama3, yarn or longrope")

    def _original_context(self) -> int:
        key = "original_max_position_embeddings"
        default = self._config.fields.integer(key, self._context)
        return self._fields.integer(key, default)

    def _llama3(self) -> rope.Llama3Scaling:
        low, high = self._fields.number("low_freq_factor"), self._fields.number("high_freq_factor")
        if high <= low:
            raise self._fields.wrong("high_freq_factor", high, f"a number above low_freq_factor ({low})")
        return rope.Llama3Scaling(self._fields.number("factor"), low, high, self._original_context())

    def _yarn(self) -> tuple[rope.Frequencies, float, int]:
        fields = self._fields
        if fields.has("mscale") or fields.has("mscale_all_dim") or not fields.flag("truncate", True):
            raise ModelFileError(
                f"{fields.path} uses a form of yarn (mscale, truncate) no supported model has"
            )
        factor = fields.number("factor")
        beta_fast, beta_slow = fields.number("beta_fast", 32.0), fields.number("beta_slow", 1.0)
        scaling = rope.YarnScaling(factor, self._original_context(), beta_fast, beta_slow)
        attention_factor = fields.number("attention_factor", rope.yarn_attention_factor(factor))
        return rope.yarn_frequencies(self._plain, self._base, scaling), attention_factor, self._context

    def _longrope(self, max_context: int | None) -> tuple[rope.Frequencies, float, int]:
        """Choose the factors by the context asked for, once (see ``gguf_spec``)."""
        original = self._original_context()
        wanted = max_context or original
        key = "long_factor" if wanted > original else "short_factor"
        stretch = self._fields.number("factor", self._context / original)
        default = rope.longrope_attention_factor(stretch, original)
        attention_factor = self._fields.number("attention_factor", default)
        return self._plain / self._factors(key), attention_factor, min(wanted, self._context)

    def _factors(self, key: str) -> rope.Frequencies:
        stated = self._fields.values.get(key)
        try:
            factors = np.array(stated, np.float64)
        except (TypeError, ValueError) as error:
            raise self._fields.wrong(key, stated, "a list of numbers") from error
        if factors.shape != self._plain.shape or not (factors > 0).all():
            raise self._fields.wrong(key, stated, f"{len(self._plain)} positive numbers")
        return factors
