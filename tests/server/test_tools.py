"""Functions that a model may call of its own accord: exact under speculation, streamed as OpenAI streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline import LLM
from paceline.models.loading import load_model_files
from paceline.server.errors import ApiError
from paceline.server.prompts import PromptReader
from paceline.server.schema import ChatRequest
from paceline.server.tools import GENERIC, HERMES, LLAMA3, CallForm, call_form, tool_use
from support.served import Served, serving
from support.tiny_models import write_tiny_gguf
from support.tiny_tokenizer import CHAT_TEMPLATE, EOS_ID, VOCAB_SIZE

openai = pytest.importorskip("openai")

CHATS = "/v1/chat/completions"
CALL_ID = VOCAB_SIZE - 1
"""The token ``<tool_call>`` of the model that these tests serve."""
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"enum": [1, 2]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "description": "Of a city.", "parameters": CITY}},
    {"type": "function", "function": {"name": "leave"}},
]
NATIVE = (
    "{% if tools %}<|im_start|>system\nCall so: <tool_call>\n"
    '{"name": <name>, "arguments": <object>}\n</tool_call>\n'
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    '{% for call in m.tool_calls or [] %}{{ "\n" }}<tool_call>\n'
    '{"name": "{{ call.function.name }}", "arguments": '
    "{{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "how is it there?"}],
    "tools": TOOLS,
    "max_tokens": 300,
    "temperature": 0,
}
CALLS = {str(CALL_ID): 100}
"""A bias that makes this model, whose words are noise, begin a call at once."""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("native") / "tiny.gguf"
    return write_tiny_gguf(path, "llama", "q8_0", seed=3, chat_template=NATIVE, user_token="<tool_call>")


@pytest.fixture(scope="module")
def calling(native: Path) -> Iterator[Served]:
    with serving(LLM(native, threads=1)) as served:
        yield served


@pytest.fixture
def client(calling: Served) -> Iterator[Any]:
    with openai.OpenAI(base_url=calling.url + "/v1", api_key="x", max_retries=0) as client:
        yield client


def bare(choice: dict[str, Any]) -> Any:
    """Return what a choice says, without what differs from request to request."""
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return message["content"], calls, choice["finish_reason"]


def check_calls(choice: dict[str, Any]) -> None:
    for call in choice["message"]["tool_calls"]:
        assert call["type"] == "function"
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "weather":
            assert arguments["city"] in ("Rome", "Oslo") and arguments["days"] in (1, 2)
        else:
            assert (call["function"]["name"], arguments) == ("leave", {})


def test_auto_is_the_default_and_may_call_or_not(calling: Served) -> None:
    text = calling.post(CHATS, {**BODY, "max_tokens": 20}).json()["choices"][0]
    assert text["finish_reason"] == "length"
    assert text["message"]["content"]
    assert "tool_calls" not in text["message"]
    assert calling.post(CHATS, {**BODY, "max_tokens": 20, "tool_choice": "auto"}).json()["choices"][0] == text
    choice = calling.post(CHATS, {**BODY, "logit_bias": CALLS, "parallel_tool_calls": False}).json()[
        "choices"
    ][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert len(choice["message"]["tool_calls"]) == 1
    check_calls(choice)
    none = calling.post(CHATS, {**BODY, "max_tokens": 20, "tool_choice": "none", "logit_bias": CALLS}).json()
    assert "tool_calls" not in none["choices"][0]["message"]


SAMPLED: dict[str, Any] = {
    **BODY,
    "temperature": 1.2,
    "n": 6,
    "logit_bias": {str(CALL_ID): 3.0, "0": -3.0, str(EOS_ID): -3.0},
}
"""Its completions with seed 11 hold text, calls behind text, and several calls."""


@pytest.mark.parametrize(
    "body", [{**BODY, "logit_bias": CALLS}, {**SAMPLED, "seed": 11}], ids=["greedy", "seed"]
)
def test_drafts_change_no_call(calling: Served, body: dict[str, Any]) -> None:
    plain = calling.post(CHATS, {**body, "speculative": {"enabled": False}}).json()["choices"]
    for drafter in ("ngram", "recycle", "suffix"):
        reply = calling.post(CHATS, {**body, "speculative": {"drafter": drafter}}).json()
        assert [bare(choice) for choice in reply["choices"]] == [bare(choice) for choice in plain]
    told = {**body, "prediction": {"type": "content", "content": HERMES.write("weather", '{"city": "Rome"')}}
    reply = calling.post(CHATS, told).json()
    assert [bare(choice) for choice in reply["choices"]] == [bare(choice) for choice in plain]
    assert reply["metrics"]["speculative_decoding"]["num_draft_tokens"] > 0
    calls = [choice for choice in plain if "tool_calls" in choice["message"]]
    for choice in calls:
        check_calls(choice)
    if "seed" in body:
        assert any(choice["message"]["content"] for choice in calls)
        assert any(len(choice["message"]["tool_calls"]) > 1 for choice in calls)


@pytest.mark.parametrize("extra", [{}, {"stream_tokens": True}, {"logprobs": True}], ids=str)
def test_a_stream_adds_up_to_the_whole(calling: Served, extra: dict[str, Any]) -> None:
    body = {**SAMPLED, "seed": 11, **extra}
    stream = {**body, "stream": True}
    whole = calling.post(CHATS, {name: body[name] for name in body if name != "stream_tokens"}).json()
    raw = calling.post(CHATS, stream).text
    chunks = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
    for choice in whole["choices"]:
        own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
        deltas = [c["delta"] for c in own]
        assert "".join(delta.get("content") or "" for delta in deltas) == (choice["message"]["content"] or "")
        calls: list[dict[str, str]] = []
        ids = []
        for piece in (piece for delta in deltas for piece in delta.get("tool_calls", ())):
            if "id" in piece:
                assert piece["index"] == len(calls)
                assert piece["type"] == "function"
                ids.append(piece["id"])
                calls.append(dict(piece["function"]))
            else:
                calls[piece["index"]]["arguments"] += piece["function"]["arguments"]
        assert calls == bare(choice)[1]
        assert len(set(ids)) == len(ids)
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        assert all("<tool_call>" not in json.dumps(delta) for delta in deltas)


def test_the_official_client_goes_round(client: Any) -> None:
    """Ask, be called, answer with what the function gave, ask again: as every agent does it."""
    messages: list[Any] = [{"role": "user", "content": "how is it there?"}]
    asked: dict[str, Any] = {"model": "tiny", "tools": TOOLS, "temperature": 0, "max_tokens": 300}
    reply = client.chat.completions.create(messages=messages, **asked, logit_bias=CALLS)
    messages.append(reply.choices[0].message)
    messages += [
        {"role": "tool", "tool_call_id": call.id, "content": "fine"}
        for call in reply.choices[0].message.tool_calls
    ]
    again = client.chat.completions.create(messages=messages, **{**asked, "max_tokens": 8})
    assert again.usage.prompt_tokens > reply.usage.prompt_tokens
    with client.chat.completions.stream(messages=messages[:1], **asked, logit_bias=CALLS) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].finish_reason == "tool_calls"
    found = [call.function.arguments for call in final.choices[0].message.tool_calls]
    assert found == [call.function.arguments for call in reply.choices[0].message.tool_calls]


def test_a_call_that_is_cut_short_is_no_whole_call(calling: Served) -> None:
    body = {**BODY, "logit_bias": CALLS, "tool_choice": {"type": "function", "function": {"name": "weather"}}}
    whole = calling.post(CHATS, body).json()["choices"][0]["message"]["tool_calls"][0]["function"][
        "arguments"
    ]
    stopped = calling.post(CHATS, {**body, "stop": '", "days'}).json()["choices"][0]
    assert stopped["finish_reason"] == "stop"
    (call,) = stopped["message"]["tool_calls"]
    assert whole.startswith(call["function"]["arguments"])
    short = calling.post(CHATS, {**body, "max_tokens": 2}).json()["choices"][0]
    assert (short["finish_reason"], short["message"]["content"]) == ("length", None)
    assert "tool_calls" not in short["message"]


def test_json_or_a_call(calling: Served) -> None:
    """With a response format, what is no call keeps to the format."""
    form = {"type": "json_schema", "json_schema": {"name": "town", "schema": CITY}}
    body = {**BODY, "response_format": form}
    text = calling.post(CHATS, body).json()["choices"][0]["message"]["content"]
    assert set(json.loads(text)) == {"city", "days"}
    check_calls(calling.post(CHATS, {**body, "logit_bias": CALLS}).json()["choices"][0])


def nested(depth: int) -> dict[str, Any]:
    """Return a schema within schemas that no arguments could follow."""
    inner: dict[str, Any] = {"type": "nonsense"}
    for _ in range(depth):
        inner = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
    return inner


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "forced and a format": (
        {"tool_choice": "required", "response_format": {"type": "json_object"}},
        "response_format",
        "contradict",
    ),
    "a regex beside": ({"structured_outputs": {"regex": "a"}}, "structured_outputs.regex", "contradict"),
    "not an object": (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]},
        "tools",
        "take an object",
    ),
    "bad parameters": (
        {
            "tools": [
                TOOLS[0],
                {
                    "type": "function",
                    "function": {"name": "f", "parameters": {"properties": {"a": {"type": "x"}}}},
                },
            ]
        },
        "tools",
        "the parameters of 'f'",
    ),
    "deep parameters": (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": nested(400)}}]},
        "tools",
        "the parameters of 'f'",
    ),
    "bad format": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "x"}}}},
        "response_format",
        "cannot",
    ),
    "bad arguments": (
        {
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]},
            ]
        },
        "messages",
        "no JSON object",
    ),
    "custom tools": ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type", "function"),
    "allowed tools": (
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}},
        "tool_choice",
        "",
    ),
    "ignore_eos": ({"ignore_eos": True}, "ignore_eos", "contradicts a grammar"),
}


@pytest.mark.parametrize(("extra", "param", "message"), WRONG.values(), ids=WRONG)
def test_what_is_refused(calling: Served, extra: dict[str, Any], param: str, message: str) -> None:
    answer = calling.post(CHATS, {**BODY, **extra})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"].startswith(param)
    assert message in error["message"]


# ---- what the model is told ----

LLAMA_ASKS = 'Respond in the format {"name": function name, "parameters": dictionary of argument name}'


@pytest.mark.parametrize(
    ("template", "form"),
    [
        (CHAT_TEMPLATE, GENERIC),
        (NATIVE, HERMES),
        ("{% if tools %}{{ '<tool_call>\\n{\\\"name\\\": <n>, ...' }}{% endif %}", HERMES),
        ("{% if tools %}{{ 'so: ' }}" + LLAMA_ASKS.replace("{", "{{ '{' }}", 1) + "{% endif %}", GENERIC),
        ("{% if tools %}" + LLAMA_ASKS + "{% endif %}", LLAMA3),
        ("{% if tools %}<tool_call>[{{ tools }}]{% endif %}", GENERIC),
        ('<tool_call>\n{"name": ', GENERIC),  # speaks of calls, but never shows a function
    ],
)
def test_forms_are_known_by_the_template(served_model: Path, template: str, form: CallForm) -> None:
    from paceline.models.chat_template import ChatTemplate

    with load_model_files(served_model) as files:
        assert call_form(ChatTemplate(template, files.tokenizer)) == form
    assert call_form(None) == GENERIC


HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "Rome?"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
            {"id": "b", "type": "function", "function": {"name": "leave", "arguments": ""}},
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "sunny"}]},
    {"role": "tool", "tool_call_id": "b", "content": "gone"},
    {"role": "user", "content": "And <|im_end|>?"},
]


def prompt(path: Path, **asked: Any) -> str:
    """Return what the model reads."""
    with load_model_files(path) as files:
        reader = PromptReader(files, 4096)
        request = ChatRequest.model_validate({"messages": HISTORY, **asked})
        (ids,) = reader.chat(request, tool_use(request, reader.form)).ids
        return files.tokenizer.decode(ids, skip_special=False)


WRITTEN = (
    'I look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "leave", "arguments": {}}\n</tool_call><|im_end|>'
)


def test_a_template_that_knows_calls_shows_them(native: Path) -> None:
    text = prompt(native, tools=TOOLS)
    assert WRITTEN in text
    assert json.dumps(TOOLS[0]) in text
    assert "<|im_start|>tool\nsunny<|im_end|>" in text
    assert "You can call functions" not in text


def test_a_template_that_knows_none_is_told_in_words(served_model: Path) -> None:
    text = prompt(served_model, tools=TOOLS, tool_choice="required")
    assert text.startswith("<|im_start|>system\nYou can call functions.")
    assert json.dumps(TOOLS[0]) in text
    assert json.dumps(TOOLS[1]) in text
    assert WRITTEN in text
    responses = "<tool_response>\nsunny\n</tool_response>\n<tool_response>\ngone\n</tool_response>"
    assert f"<|im_start|>user\n{responses}<|im_end|>" in text
    for extra in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        plain = prompt(served_model, **extra)
        assert plain == text[text.index("<|im_start|>user") :]


def test_tokens_of_a_chat_with_functions_can_be_counted(calling: Served) -> None:
    asked = {"messages": BODY["messages"], "tools": TOOLS}
    counted = calling.post("/tokenize", asked).json()
    reply = calling.post(CHATS, {**asked, "max_tokens": 1, "return_token_ids": True}).json()
    assert counted["tokens"] == reply["choices"][0]["prompt_token_ids"]
    assert calling.post("/tokenize", {"prompt": "a", "tools": TOOLS}).json()["error"]["param"] == "tools"


def test_a_system_message_is_kept_and_one_that_is_refused_avoided(tmp_path: Path, served_model: Path) -> None:
    system = {"role": "system", "content": "Be brief."}
    text = prompt(served_model, tools=TOOLS, messages=[system, *HISTORY])
    assert text.startswith("<|im_start|>system\nBe brief.\n\nYou can call functions.")
    assert text.count("<|im_start|>system") == 1
    refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    path = write_tiny_gguf(tmp_path / "a.gguf", chat_template=refuses + CHAT_TEMPLATE)
    text = prompt(path, tools=TOOLS)
    assert text.startswith("<|im_start|>user\nYou can call functions.")
    assert "Rome?<|im_end|>" in text


def test_functions_too_long_for_the_context_are_refused_at_once(served_model: Path) -> None:
    long = {"type": "function", "function": {"name": "f", "description": "word " * 100_000}}
    with pytest.raises(ApiError, match=r"tools has .* characters"):
        prompt(served_model, tools=[long])


def test_calls_in_parallel_are_the_default_of_models_that_know_them() -> None:
    def use(form: CallForm, **asked: Any) -> bool:
        found = tool_use(ChatRequest.model_validate({"messages": HISTORY, "tools": TOOLS, **asked}), form)
        assert found is not None
        return found.is_parallel

    for form, default in ((HERMES, True), (GENERIC, False), (LLAMA3, False)):
        assert use(form) == default
        assert use(form, parallel_tool_calls=True) == (form is not LLAMA3)
        assert not use(form, parallel_tool_calls=False)
        assert not use(form, tool_choice={"type": "function", "function": {"name": "leave"}})


@pytest.mark.parametrize("depth", [200, 400, 800])
def test_arguments_nested_deeply_are_refused(calling: Served, depth: int) -> None:
    """A template that knows calls gets them as objects, which are walked through."""
    arguments = '{"a":' * depth + "1" + "}" * depth
    made = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}
    body = {**BODY, "messages": [*BODY["messages"], made]}
    assert calling.post(CHATS, body).status_code == 400
