"""What callers may give as prompts, turned into token ids and parameters."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from paceline.config import check_names
from paceline.errors import ConfigError, PromptError
from paceline.models.loading import ModelFiles
from paceline.sampling.noise import MAX_SEED
from paceline.sampling.params import SamplingParams

T = TypeVar("T")
Prompt = str | Sequence[int] | Mapping[str, Any]
Conversation = Sequence[Mapping[str, Any]]
Params = SamplingParams | Sequence[SamplingParams] | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prompt ready to run: its text if it had one, its ids, its parameters with ``prediction`` as ids."""

    text: str | None
    ids: tuple[int, ...]
    params: SamplingParams

    def completions(self) -> Iterator[SamplingParams]:
        """Yield the parameters of each of the ``n`` completions; a seed is counted on from the first."""
        for index in range(self.params.n):
            seed = None if self.params.seed is None else (self.params.seed + index) & MAX_SEED
            yield replace(self.params, n=1, seed=seed)


def prepare(files: ModelFiles, prompt: Prompt, params: SamplingParams) -> Prepared:
    """Return a prompt's ids. Its text may spell special tokens: the caller writes the whole prompt."""
    if isinstance(prompt, Mapping):
        check_names("prompt", prompt, ("prompt", "prompt_token_ids"))
        if len(prompt) != 1:
            raise PromptError(f"a prompt needs one of 'prompt' and 'prompt_token_ids', got {list(prompt)}")
        ((form, prompt),) = prompt.items()
        if form == "prompt_token_ids" and isinstance(prompt, str):
            raise PromptError(f"prompt_token_ids {prompt!r:.60}: give a list of token ids")
    if isinstance(prompt, str):
        if not prompt:
            raise PromptError("the prompt is empty: give some text, or token ids")
        ids = tuple(files.tokenizer.encode(prompt, parse_special=True))
        return Prepared(prompt, ids, _with_ids(files, params))
    return Prepared(None, _token_ids(prompt), _with_ids(files, params))


def _token_ids(prompt: Iterable[object]) -> tuple[int, ...]:
    """Return a prompt's ids, of any integer type: 1.7, True, "3" and bytes are mistakes, not ids."""
    try:
        tokens = tuple(prompt)
        if not isinstance(prompt, bytes) and not any(isinstance(token, bool) for token in tokens):
            return tuple(map(operator.index, tokens))  # type: ignore[arg-type]
    except TypeError:
        pass
    raise PromptError(f"prompt {prompt!r:.60}: give text or a list of token ids")


def prepare_chat(files: ModelFiles, messages: Conversation, params: SamplingParams) -> Prepared:
    """Return a conversation's ids under the model's template. Raises ``PromptError`` for a base model."""
    template = files.chat_template
    return Prepared(template.render(messages), tuple(template.encode(messages)), _with_ids(files, params))


def as_batch(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """Return a list of prompts, whether one or several were given."""
    if isinstance(prompts, str | Mapping):
        return [prompts]
    if not isinstance(prompts, Iterable):
        raise PromptError(f"prompt {prompts!r:.60}: give text, token ids, or a list of those")
    items: list[Any] = list(prompts)
    if not items:
        raise PromptError("there is no prompt: give text, token ids, or a list of those")
    return items if all(hasattr(item, "__len__") for item in items) else [items]


def as_conversations(messages: Conversation | Sequence[Conversation]) -> list[Conversation]:
    """Return a list of conversations, whether one or several were given."""
    if isinstance(messages, str | Mapping) or not isinstance(messages, Iterable):
        raise PromptError(f"messages {messages!r:.60}: give a list of {{'role': …, 'content': …}}")
    items: list[Any] = list(messages)
    if not items:
        raise PromptError("the conversation is empty: give at least one message")
    return [items] if isinstance(items[0], Mapping) else items


def paired(batch: Sequence[T], params: Params) -> list[tuple[T, SamplingParams]]:
    """Return each prompt with its parameters: the defaults, one for all, or one for each."""
    if params is None or isinstance(params, SamplingParams):
        return [(item, params or SamplingParams()) for item in batch]
    if isinstance(params, str | Mapping) or not isinstance(params, Iterable):
        raise ConfigError(f"sampling_params={params!r:.60}: give a SamplingParams, or a list of them")
    given = list(params)
    if len(given) != len(batch):
        raise ConfigError(f"{len(given)} sampling_params for {len(batch)} prompts: give one, or one for each")
    return list(zip(batch, given, strict=True))


def _with_ids(files: ModelFiles, params: SamplingParams) -> SamplingParams:
    if not isinstance(params, SamplingParams):
        raise ConfigError(f"sampling_params={params!r:.60}: give a SamplingParams")
    if not isinstance(params.prediction, str):
        return params
    return replace(params, prediction=files.tokenizer.encode(params.prediction, add_bos=False))
