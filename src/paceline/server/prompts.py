"""From the prompts of a request to token ids; slow enough to be done beside the event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from paceline.errors import PromptError, nearest_name
from paceline.models.loading import ModelFiles
from paceline.server.errors import ApiError, bad_request
from paceline.server.schema import ChatRequest, CompletionRequest, Message, Sampling
from paceline.server.tools import (
    CallForm,
    ToolUse,
    call_form,
    described,
    generic_messages,
    native_messages,
    tell,
)

if TYPE_CHECKING:
    from paceline.models.chat_template import ChatTemplate


@dataclass(frozen=True, slots=True)
class Prompts:
    """``ids``: per prompt. ``echoes``: their texts, where the reply repeats them."""

    ids: tuple[tuple[int, ...], ...]
    prediction: tuple[int, ...] | None
    echoes: tuple[str, ...] = ()


class PromptReader:
    """``max_tokens``: the longest sequence of the engine."""

    def __init__(self, files: ModelFiles, max_tokens: int) -> None:
        self._files = files
        # No token spells more than the longest one, so a longer text surely has too many tokens. Telling that
        # takes no time; finding out by tokenizing megabytes would.
        longest = max(map(len, files.tokenizer.tokens))
        self._max_characters = max_tokens * longest
        self._max_tokens = max_tokens

    @cached_property
    def form(self) -> CallForm:
        """How the model writes calls of functions."""
        return call_form(None if self._files.chat_template_text is None else self._files.chat_template)

    def chat(self, request: ChatRequest, use: ToolUse | None) -> Prompts:
        """Return the ids of a conversation. Raises ``ApiError``."""
        variables = request.chat_template_kwargs or {}
        self._check_variables(variables)
        ids = self.conversation(request.messages, variables, use)
        return Prompts((ids,), self._predicted(request))

    def conversation(
        self, messages: Sequence[Message], variables: Mapping[str, Any], use: ToolUse | None = None
    ) -> tuple[int, ...]:
        """Return the ids of messages under the model's template, with the functions of ``use``. Raises
        ``ApiError``.
        """
        for message in messages:
            calls = [call.function.arguments for call in message.tool_calls or ()]
            self._check_length("messages", sum(map(len, (message.text, *calls))))
        shown = [] if use is None else [described(tool) for tool in use.shown]
        self._check_length("tools", len(str(shown)))
        template = self._template
        try:
            if self.form.is_native:
                plain = native_messages(messages)
                variables = {**variables, **({"tools": shown} if shown else {})}
            else:
                plain = generic_messages(messages)
                if use is not None:
                    plain = tell(plain, use.shown, "system" if self._takes_system else "user")
            return tuple(template.encode(plain, **variables))
        except PromptError as error:
            raise bad_request(str(error), "messages") from error
        except RecursionError as error:
            raise bad_request("arguments, tools or variables are nested too deeply", "messages") from error

    def _check_variables(self, given: Mapping[str, Any]) -> None:
        """Raise ``ApiError`` for a variable that the template does not read: it would do nothing."""
        for name in given:
            if name not in self._template.variables:
                near = nearest_name(name, self._template.variables)
                raise bad_request(
                    f"chat_template_kwargs.{name:.60} does nothing, the template does not read it{near}: "
                    "leave it out",
                    "chat_template_kwargs",
                )

    @property
    def _template(self) -> ChatTemplate:
        try:
            return self._files.chat_template
        except PromptError as error:
            raise bad_request(str(error), "messages") from error

    @cached_property
    def _takes_system(self) -> bool:
        """Whether the template has a place for a system message; some refuse it."""
        try:
            self._template.render([{"role": "system", "content": "a"}, {"role": "user", "content": "b"}])
        except PromptError:
            return False
        return True

    def completion(self, request: CompletionRequest) -> Prompts:
        """Return the ids of plain prompts. Raises ``ApiError``."""
        prompts = request.prompts
        ids = tuple(self.plain(prompt) for prompt in prompts)
        echoes: tuple[str, ...] = ()
        if request.echo:
            decode = self._files.tokenizer.decode
            pairs = zip(prompts, ids, strict=True)
            echoes = tuple(prompt if isinstance(prompt, str) else decode(own) for prompt, own in pairs)
        return Prompts(ids, self._predicted(request), echoes)

    def plain(self, prompt: str | Sequence[int], add_bos: bool | None = None) -> tuple[int, ...]:
        """Return the ids of text (which may spell special tokens) or of ids. Raises ``ApiError``."""
        if not isinstance(prompt, str):
            return tuple(prompt)
        if not prompt:
            raise bad_request("the prompt is empty: give some text, or token ids", "prompt")
        self._check_length("prompt", len(prompt))
        try:
            return tuple(self._files.tokenizer.encode(prompt, parse_special=True, add_bos=add_bos))
        except PromptError as error:
            raise bad_request(str(error), "prompt") from error

    def _predicted(self, request: Sampling) -> tuple[int, ...] | None:
        if request.prediction is None:
            return None
        text = request.prediction.text
        self._check_length("prediction", len(text))
        return tuple(self._files.tokenizer.encode(text, add_bos=False))

    def _check_length(self, param: str, characters: int) -> None:
        if characters > self._max_characters:
            raise ApiError(
                400,
                f"{param} has {characters} characters, which is more than {self._max_tokens} tokens can be "
                "(max_model_len): shorten it",
                param=param,
                code="context_length_exceeded",
            )
