"""Whether a request can run on this engine; everything that can be told before it is queued."""

from __future__ import annotations

from paceline.config import EngineConfig
from paceline.errors import CacheFullError, ConfigError, PromptError
from paceline.executors.base import Executor
from paceline.sampling.params import SamplingParams


def length_limit(prompt: tuple[int, ...], params: SamplingParams, config: EngineConfig) -> int:
    """Return the known length at which the request ends with finish reason ``length``."""
    if params.max_tokens is None:
        return config.max_model_len
    return min(config.max_model_len, len(prompt) + params.max_tokens)


def check_request(
    prompt: tuple[int, ...], params: SamplingParams, config: EngineConfig, executor: Executor
) -> None:
    """Raise ``PromptError``, ``ConfigError`` or ``CacheFullError`` for a request that cannot run."""
    _check_prompt(prompt, config, executor.vocab_size)
    _check_ids(params, executor.vocab_size)
    if params.n != 1:
        raise ConfigError(f"n={params.n}: the engine runs single completions; LLM.generate opens n of them")
    if isinstance(params.prediction, str):
        raise ConfigError("prediction is text: the engine takes token ids; LLM.generate translates")
    slots = length_limit(prompt, params, config) - 1
    capacity = executor.num_blocks * executor.block_size
    if slots > capacity:
        raise CacheFullError(
            f"the request may need {slots} KV slots but the cache has {capacity}: lower max_tokens or raise "
            f"kv_cache_tokens"
        )


def _check_prompt(prompt: tuple[int, ...], config: EngineConfig, vocab_size: int) -> None:
    if not prompt:
        raise PromptError("the prompt is empty: give at least one token")
    if len(prompt) >= config.max_model_len:
        raise PromptError(
            f"the prompt has {len(prompt)} tokens and leaves no room for a reply in max_model_len="
            f"{config.max_model_len}: shorten it or raise max_model_len (--context)"
        )
    if min(prompt) < 0 or max(prompt) >= vocab_size:
        wrong = next(token for token in prompt if not 0 <= token < vocab_size)
        raise PromptError(f"prompt token {wrong} is outside the vocabulary of {vocab_size} tokens")


def _check_ids(params: SamplingParams, vocab_size: int) -> None:
    given = {
        "stop_token_ids": params.stop_ids,
        "logit_bias": tuple(params.logit_bias or ()),
        "prediction": params.prediction if isinstance(params.prediction, tuple) else (),
    }
    for name, ids in given.items():
        for token in ids:
            if not 0 <= token < vocab_size:
                raise ConfigError(f"{name} holds {token}, outside the vocabulary of {vocab_size} tokens")
    if params.logprobs is not None and params.logprobs > vocab_size:
        raise ConfigError(f"logprobs={params.logprobs} is more than the vocabulary of {vocab_size} tokens")
