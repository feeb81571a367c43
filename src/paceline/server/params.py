"""From what a request says to what the engine takes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from paceline.engine.terms import QueueTerms
from paceline.errors import ConfigError, nearest_name
from paceline.sampling.grammar import Grammar
from paceline.sampling.noise import MAX_SEED
from paceline.sampling.params import SamplingParams
from paceline.server.errors import as_api_error, bad_request
from paceline.server.schema import ChatRequest, CompletionRequest, Sampling
from paceline.server.settings import ServerSettings

COMPLETION_TOKENS = 16
"""OpenAI's default of ``max_tokens`` for plain completions; chats go on to the context's end."""

_SAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "workload",
)
_GREEDY_MOOT = ("top_p", "top_k", "min_p")
_NAMES = {
    name: name for name in (*_SAME, "stop", "seed", "max_tokens", "logit_bias", "logprobs", "n", "prompt")
} | {name: f"speculative.{name}" for name in ("drafter", "num_draft_tokens", "acceptance")}


@dataclass(frozen=True, slots=True)
class Chosen:
    """``params``: of the first completion; ``n``: how many there are."""

    params: SamplingParams
    n: int

    def completion(self, index: int) -> SamplingParams:
        """Return the parameters of completion ``index``: as ``LLM.generate``, the seed is counted on."""
        seed = self.params.seed
        return self.params if seed is None else replace(self.params, seed=(seed + index) & MAX_SEED)


def choose(
    request: Sampling,
    drafters: Collection[str],
    prediction: tuple[int, ...] | None = None,
    grammar: Grammar | None = None,
) -> Chosen:
    """Return the sampling parameters of a request. Raises ``ApiError``.

    At temperature 0 the filters top_p, top_k and min_p change nothing and are left out: OpenAI's clients send
    them along, and the library would call that a mistake. ``drafters``: those a request may name.
    """
    _check_combinations(request)
    values: dict[str, Any] = {name: value for name in _SAME if (value := getattr(request, name)) is not None}
    moot = {
        name: values.pop(name) for name in _GREEDY_MOOT if values.get("temperature") == 0.0 and name in values
    }
    values["max_tokens"] = _max_tokens(request)
    values["logprobs"] = (
        request.num_logprobs if isinstance(request, ChatRequest | CompletionRequest) else None
    )
    if request.stop is not None:
        values["stop"] = request.stop
    if request.seed is not None:
        values["seed"] = request.seed & MAX_SEED
    if request.logit_bias:
        values["logit_bias"] = {_token_id(key): bias for key, bias in request.logit_bias.items()}
    if prediction:
        values["prediction"] = prediction
    values["grammar"] = grammar
    values |= _drafting(request, drafters)
    try:
        SamplingParams(temperature=1.0, **moot)  # out of range they are wrong all the same
        return Chosen(SamplingParams(**values), request.n or 1)
    except ConfigError as error:
        raise as_api_error(error, _NAMES) from error


def queue_terms(request: Sampling, settings: ServerSettings, client: str) -> QueueTerms:
    """Return how a request is served beside others: its own limits, or the server's where they are less."""
    return QueueTerms(
        priority=request.priority or 0,
        client=request.user or client,
        max_queue_time=_least(request.max_queue_time, settings.max_queue_time),
        deadline=_least(request.deadline, settings.request_timeout),
    )


def engine_error_names() -> dict[str, str]:
    """Return which parameter an error of the engine may name."""
    return dict(_NAMES)


def _least(own: float | None, server: float | None) -> float | None:
    given = [limit for limit in (own, server) if limit is not None]
    return min(given) if given else None


def _check_combinations(request: Sampling) -> None:
    """Raise ``ApiError`` for a parameter that would do nothing, or cannot be done together with another."""
    if request.stream_options is not None and not request.stream:
        raise bad_request("stream_options does nothing without stream=true: leave it out", "stream_options")
    if request.stream_tokens and not request.stream:
        raise bad_request("stream_tokens does nothing without stream=true: leave it out", "stream_tokens")
    if isinstance(request, ChatRequest):
        if request.top_logprobs and not request.logprobs:
            raise bad_request("top_logprobs needs logprobs=true", "top_logprobs")
        if len({request.max_tokens, request.max_completion_tokens} - {None}) > 1:
            raise bad_request("max_tokens is the old name of max_completion_tokens: give one", "max_tokens")
        _check_template_variables(request.chat_template_kwargs or {})
    if isinstance(request, CompletionRequest):
        if request.best_of not in (None, request.n or 1):
            raise bad_request("best_of is not supported beyond n: leave it out", "best_of")
        if request.echo and request.logprobs is not None:
            raise bad_request("echo with logprobs is not supported: the prompt's are not computed", "echo")


def _check_template_variables(variables: dict[str, Any]) -> None:
    own = ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token")
    for name in variables:
        if name in own or not name.isidentifier():
            raise bad_request(f"chat_template_kwargs must not set {name!r:.60}", "chat_template_kwargs")


def _max_tokens(request: Sampling) -> int | None:
    if isinstance(request, ChatRequest) and request.max_completion_tokens is not None:
        return request.max_completion_tokens
    if request.max_tokens is None and isinstance(request, CompletionRequest):
        return COMPLETION_TOKENS
    return request.max_tokens


def _token_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise bad_request(f"logit_bias key {text!r:.40}: give a token id", "logit_bias")
    return int(text)


def _drafting(request: Sampling, drafters: Collection[str]) -> dict[str, Any]:
    speculative = request.speculative
    if speculative is None:
        return {}
    named = {
        name: value
        for name in ("drafter", "num_draft_tokens", "acceptance")
        if (value := getattr(speculative, name)) is not None
    }
    if not speculative.enabled:
        if named:
            raise bad_request(
                f"speculative.{next(iter(named))} does nothing with enabled=false: drop one of them",
                f"speculative.{next(iter(named))}",
            )
        if request.prediction is not None:
            raise bad_request("prediction does nothing with speculative.enabled=false", "prediction")
        return {"drafter": "none"}
    name = named.get("drafter")
    if name is not None and name not in drafters:
        raise bad_request(
            f"speculative.drafter={name!r:.60} cannot be chosen here{nearest_name(name, drafters)}; valid: "
            f"{', '.join(sorted(drafters))}",
            "speculative.drafter",
        )
    return named
