"""What a request asks for. The names and defaults are those of vLLM's ``SamplingParams``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from paceline.config import (
    MAX_DRAFT_TOKENS,
    Acceptance,
    Settings,
    check_bool,
    check_choice,
    check_float,
    check_int,
)
from paceline.errors import ConfigError
from paceline.sampling.grammar import Grammar
from paceline.sampling.noise import MAX_SEED

MIN_TEMPERATURE = 1e-4
MAX_LABEL = 64
"""Characters of a workload label: it becomes a metric's label."""


@dataclass(frozen=True, slots=True)
class SamplingParams(Settings):
    """Sampling, stopping and drafting of one request.

    ``n``: completions per prompt; completion i of a seeded request uses seed + i. ``temperature`` 0 is
    greedy. ``top_k`` 0 or -1, ``top_p`` 1 and ``min_p`` 0 switch a filter off. ``max_tokens`` None: up to the
    context. ``min_tokens``: EOS, stop ids and stop strings do not end the reply before more tokens than this
    are out. ``stop``: strings; the text is cut before the first one found (after it with
    ``include_stop_str_in_output``). ``token_ids`` keep every token up to the one that completed a stop rule.
    ``seed``: makes the reply a function of (weights, prompt, params, seed). ``logprobs``: how many of the
    most likely tokens to report, beside the chosen one; raw log-softmax, before penalties, temperature,
    filters. ``repetition_penalty`` counts prompt and reply, ``frequency_penalty`` and ``presence_penalty``
    the reply. ``logit_bias``: token id → added to its logit. ``skip_special_tokens``: leave them out of the
    text. ``grammar``: what the reply must follow, see :class:`~paceline.sampling.grammar.GrammarCompiler`.

    Drafting, each ``None`` for the engine's setting: ``drafter``, ``num_draft_tokens``, ``acceptance``.
    ``prediction``: text or token ids the reply is expected to hold (OpenAI predicted outputs). ``workload``:
    a label of the kind of request, such as ``code``: acceptance is counted and watched for each label apart
    (docs/drift.md), and nothing else depends on it.

    Raises ``ConfigError`` for unknown names, values out of range, and settings that would do nothing.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: str | Sequence[str] | None = ()
    stop_token_ids: Sequence[int] | None = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    skip_special_tokens: bool = True
    grammar: Grammar | None = None
    drafter: str | None = None
    num_draft_tokens: int | None = None
    acceptance: Acceptance | None = None
    prediction: str | Sequence[int] | None = None
    workload: str | None = None

    def __post_init__(self) -> None:
        self._normalise()
        self._check_ranges()
        self._check_stops()
        self._check_combinations()
        if self.workload is not None and not _is_label(self.workload):
            raise ConfigError(
                f"workload={self.workload!r:.80}: give a label of 1 to {MAX_LABEL} printable characters"
            )

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """``stop`` in its normal form."""
        return self.stop  # type: ignore[return-value]

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """``stop_token_ids`` in its normal form."""
        return self.stop_token_ids  # type: ignore[return-value]

    @property
    def has_penalties(self) -> bool:
        return (self.repetition_penalty, self.frequency_penalty, self.presence_penalty) != (1.0, 0.0, 0.0)

    def _normalise(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        object.__setattr__(self, "stop", _as_tuple("stop", self.stop, "a string or a list of strings"))
        ids = _as_tuple("stop_token_ids", self.stop_token_ids, "a list of token ids")
        object.__setattr__(self, "stop_token_ids", ids)
        if self.top_k == -1:
            object.__setattr__(self, "top_k", 0)
        if self.logit_bias is not None and not isinstance(self.logit_bias, Mapping):
            raise ConfigError(f"logit_bias={self.logit_bias!r}: give a mapping from token id to number")
        if self.prediction is not None and not isinstance(self.prediction, str):
            prediction = _as_tuple("prediction", self.prediction, "text or a list of token ids")
            object.__setattr__(self, "prediction", prediction)

    def _check_ranges(self) -> None:
        check_int("n", self.n, 1)
        check_float("temperature", self.temperature, 0.0, math.inf)
        if 0.0 < self.temperature < MIN_TEMPERATURE:
            raise ConfigError(
                f"temperature={self.temperature}: give 0 (greedy) or at least {MIN_TEMPERATURE}"
            )
        check_float("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0.0:
            raise ConfigError("top_p=0.0 keeps no token: give a number above 0, or temperature=0 for greedy")
        check_int("top_k", self.top_k, 0, hint="0 or -1 switches it off")
        check_float("min_p", self.min_p, 0.0, 1.0)
        if self.max_tokens is not None:
            check_int("max_tokens", self.max_tokens, 1, hint="None for as many as fit the context")
        check_int("min_tokens", self.min_tokens, 0)
        if self.seed is not None:
            check_int("seed", self.seed, 0, MAX_SEED, hint="None for a fresh one")
        if self.logprobs is not None:
            check_int("logprobs", self.logprobs, 0)
        check_float("repetition_penalty", self.repetition_penalty, 1e-3, 1e3, "1 switches it off")
        check_float("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        check_float("presence_penalty", self.presence_penalty, -2.0, 2.0)
        for token, bias in (self.logit_bias or {}).items():
            check_int("logit_bias token id", token, 0)
            check_float(f"logit_bias[{token}]", bias, -100.0, 100.0)
        for name in ("include_stop_str_in_output", "ignore_eos", "skip_special_tokens"):
            check_bool(name, getattr(self, name))
        if self.num_draft_tokens is not None:
            check_int("num_draft_tokens", self.num_draft_tokens, 0, MAX_DRAFT_TOKENS)
        if self.acceptance is not None:
            check_choice("acceptance", self.acceptance, get_args(Acceptance))

    def _check_stops(self) -> None:
        for text in self.stop_strings:
            if not isinstance(text, str) or not text:
                raise ConfigError(f"stop holds {text!r}: give strings that are not empty")
        for token in self.stop_ids:
            check_int("stop_token_ids entry", token, 0)
        if isinstance(self.prediction, tuple):
            for token in self.prediction:
                check_int("prediction token id", token, 0)
        if self.include_stop_str_in_output and not (self.stop_strings or self.stop_ids):
            raise ConfigError("include_stop_str_in_output=True does nothing without stop or stop_token_ids")

    def _check_grammar(self) -> None:
        if not isinstance(self.grammar, Grammar):
            raise ConfigError(f"grammar={self.grammar!r:.60}: give a Grammar, which GrammarCompiler makes")
        for name in ("min_tokens", "ignore_eos"):
            if getattr(self, name):
                raise ConfigError(f"{name} contradicts a grammar, which says itself where the reply may end")

    def _check_combinations(self) -> None:
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ConfigError(f"min_tokens={self.min_tokens} is above max_tokens={self.max_tokens}: lower it")
        if self.grammar is not None:
            self._check_grammar()
        if self.is_greedy:
            for name, off in (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0)):
                if getattr(self, name) != off:
                    raise ConfigError(
                        f"{name}={getattr(self, name)} does nothing at temperature=0, which takes the "
                        f"most likely token: drop it or raise the temperature"
                    )
            if self.n > 1:
                raise ConfigError(f"n={self.n} at temperature=0 gives equal completions: use n=1")
            if self.acceptance not in (None, "auto", "greedy"):
                raise ConfigError(f"acceptance={self.acceptance!r} does nothing at temperature=0: drop it")
        elif self.acceptance == "greedy":
            raise ConfigError(f"acceptance='greedy' is wrong at temperature={self.temperature}: use 'auto'")
        if self.drafter == "none":
            for name in ("num_draft_tokens", "prediction", "acceptance"):
                if getattr(self, name):
                    raise ConfigError(f"{name} does nothing with drafter='none': choose a drafter or drop it")


def _is_label(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_LABEL and value.isprintable()


def _as_tuple(name: str, value: object, wanted: str) -> tuple[object, ...]:
    if value is None:
        return ()
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        try:
            return tuple(int(item) for item in value)  # type: ignore[attr-defined]  # numpy arrays of ids
        except (TypeError, ValueError):
            raise ConfigError(f"{name}={value!r}: give {wanted}") from None
    return tuple(value)
