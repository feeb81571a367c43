"""What requests may say, as pydantic models. Anything else is refused by name (see :mod:`.refused`).

Ranges that the library checks itself are only described here (:func:`documented`): its messages name field,
value and way out.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from paceline.config import MAX_DRAFT_TOKENS, Acceptance
from paceline.models.chat_template import ROLES
from paceline.server.unsupported import UNSUPPORTED

MAX_COMPLETIONS = 128
"""OpenAI's bound on ``n``."""
MAX_STOPS = 16
MAX_STOP_LENGTH = 1024
MAX_STOP_IDS = 1024
MAX_BIASES = 1024
MAX_TOP_LOGPROBS = 20
MAX_PROMPTS = 1024
MAX_MESSAGES = 4096
MAX_TOOLS = 128
MAX_SEED = 2**64 - 1
MIN_SEED = -(2**63)

NAME = r"^[A-Za-z0-9_-]{1,64}$"
"""Of schemas and functions, as OpenAI has it."""


def documented(kind: str, **more: Any) -> WithJsonSchema:
    """Return what the OpenAPI description says of a value that the library checks."""
    return WithJsonSchema({"type": kind, **more})


Penalty = Annotated[float, documented("number", minimum=-2, maximum=2)]
Share = Annotated[float, documented("number", minimum=0, maximum=1)]
Bias = Annotated[float, documented("number", minimum=-100, maximum=100)]
TokenKey = Annotated[str, documented("string", pattern="^[0-9]{1,9}$")]
Text = Annotated[str, documented("string", minLength=1)]
Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
Stops = Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Most = Annotated[int, Field(ge=0, le=2**31 - 1), documented("integer", minimum=1, maximum=2**31 - 1)]


class Strict(BaseModel):
    """No unknown names, no NaN, no ``"1"`` for 1."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Speculative(Strict):
    """Drafting of one request. ``enabled`` false is plain decoding, and then nothing else may be said."""

    enabled: bool = True
    drafter: str | None = None
    num_draft_tokens: Annotated[int, documented("integer", minimum=0, maximum=MAX_DRAFT_TOKENS)] | None = None
    acceptance: Annotated[str, documented("string", enum=list(get_args(Acceptance)))] | None = None


class StreamOptions(Strict):
    """``include_usage``: a last chunk with the usage. ``continuous_usage_stats``: usage in every chunk.
    ``include_obfuscation`` false is what always happens here.
    """

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: Literal[False] = False


class TextPart(Strict):
    """A piece of text."""

    type: Literal["text"]
    text: str


class Prediction(Strict):
    """Text that the reply is expected to hold."""

    type: Literal["content"] = "content"
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class FunctionCalled(Strict):
    """``arguments``: a JSON object, as text."""

    name: Annotated[str, Field(pattern=NAME)]
    arguments: str


class CallMade(Strict):
    """A call that the assistant made earlier."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCalled


class Message(Strict):
    """One message of a conversation. What a model's template does not show is lost on it."""

    role: Annotated[str, documented("string", enum=list(ROLES))]
    content: str | list[TextPart] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[CallMade], Field(max_length=MAX_TOOLS)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    # What clients repeat of a reply's message, empty as it always is here.
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    audio: None = None
    function_call: None = None

    @property
    def text(self) -> str:
        """The content in one piece, as templates show it."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "\n".join(part.text for part in self.content)


class JsonSchema(Strict):
    """A schema that the reply follows. It is always followed strictly, whatever ``strict`` says."""

    name: Annotated[str, Field(pattern=NAME)]
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Strict):
    """``json_object``: any JSON object. ``json_schema``: one that follows ``json_schema.schema``."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(Strict):
    """vLLM's form of grammars: exactly one of these."""

    json_: dict[str, Any] | None = Field(None, alias="json")
    regex: str | None = None
    choice: Annotated[list[str], Field(min_length=1, max_length=1024)] | None = None
    grammar: str | None = Field(None, description="In Lark's notation.")


class Function(Strict):
    """A function that the model may call, or be made to call. Its arguments always follow ``parameters``,
    whatever ``strict`` says.
    """

    name: Annotated[str, Field(pattern=NAME)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Strict):
    type: Literal["function"]
    function: Function


class NamedFunction(Strict):
    name: str


class NamedTool(Strict):
    """The function that must be called."""

    type: Literal["function"]
    function: NamedFunction


class Sampling(Strict):
    """What both interfaces share."""

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_COMPLETIONS)] | None = None
    temperature: Annotated[float, documented("number", minimum=0)] | None = None
    top_p: Annotated[float, documented("number", exclusiveMinimum=0, maximum=1)] | None = None
    seed: Annotated[int, Field(ge=MIN_SEED, le=MAX_SEED)] | None = None
    stop: Stops | None = None
    max_tokens: Most | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Annotated[dict[TokenKey, Bias], Field(max_length=MAX_BIASES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[str, Field(max_length=256)] | None = Field(
        None, description="Whom the request counts for when clients take turns."
    )
    prediction: Prediction | None = None
    structured_outputs: StructuredOutputs | None = None

    top_k: Annotated[int, documented("integer", minimum=-1)] | None = None
    min_p: Share | None = None
    repetition_penalty: Annotated[float, documented("number", minimum=1e-3, maximum=1e3)] | None = None
    min_tokens: Count | None = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[Count], Field(max_length=MAX_STOP_IDS)] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None

    speculative: Speculative | None = None
    workload: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    max_queue_time: Annotated[float, Field(gt=0)] | None = None
    deadline: Annotated[float, Field(gt=0)] | None = None
    stream_tokens: bool | None = None
    include_token_origin: bool | None = None
    return_token_ids: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _leave_out_nulls(cls, given: Any) -> Any:
        """Take null as "not given" for parameters that are not honoured too: some clients send all names."""
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None or name not in UNSUPPORTED}

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def wants_running_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.continuous_usage_stats


class ChatRequest(Sampling):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Most | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    modalities: list[Literal["text"]] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    NAME: ClassVar = "chat.completion"

    @property
    def num_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(Sampling):
    """``POST /v1/completions``. ``prompt``: text, token ids, or a list of either."""

    prompt: (
        Text
        | Annotated[list[Count], Field(min_length=1)]
        | Annotated[list[Text], Field(min_length=1, max_length=MAX_PROMPTS)]
        | Annotated[
            list[Annotated[list[Count], Field(min_length=1)]], Field(min_length=1, max_length=MAX_PROMPTS)
        ]
    )
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    best_of: int | None = None

    NAME: ClassVar = "text_completion"

    @property
    def num_logprobs(self) -> int | None:
        return self.logprobs

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts, whether one or several were given."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [[token for token in self.prompt if isinstance(token, int)]]
        return [item for item in self.prompt if isinstance(item, str | list)]


class TokenizeRequest(Strict):
    """``POST /tokenize``: text, or messages under the model's template, with ``tools`` as a chat has them."""

    model: str | None = None
    prompt: Text | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)] | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    return_token_strs: bool = False


class DetokenizeRequest(Strict):
    """``POST /detokenize``."""

    model: str | None = None
    tokens: list[Count]
