"""JSON, schemas and forced calls through the server, on a model whose own words are noise."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from support.served import Served

openai = pytest.importorskip("openai")

MESSAGES: list[Any] = [{"role": "user", "content": "who is there?"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"enum": ["Ada", "Grace"]},
        "ages": {"type": "array", "items": {"enum": [1, 2, 30]}, "minItems": 2, "maxItems": 3},
    },
    "required": ["name", "ages"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "greet", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "leave"}},
]
BODY: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 200, "temperature": 0.0}
CHATS = "/v1/chat/completions"


def follows(text: str) -> bool:
    found = json.loads(text)
    return (
        set(found) == {"name", "ages"} and found["name"] in ("Ada", "Grace") and 2 <= len(found["ages"]) <= 3
    )


@pytest.mark.parametrize(
    "params", [{"temperature": 0.0}, {"temperature": 1.5, "seed": 3}, {"temperature": 2.0}]
)
def test_a_schema_is_followed_and_drafts_change_nothing(served: Served, params: dict[str, Any]) -> None:
    body = {**BODY, **params, "response_format": FORMAT}
    texts = set()
    for speculative in ({"enabled": False}, {"drafter": "ngram"}, {"drafter": "recycle"}, {"enabled": True}):
        choice = served.post(CHATS, {**body, "speculative": speculative}).json()["choices"][0]
        assert choice["finish_reason"] == "stop"
        assert follows(choice["message"]["content"])
        texts.add(choice["message"]["content"])
    assert len(texts) == 1 or ("seed" not in params and params["temperature"] > 0)


def test_streams_end_inside_a_block(served: Served) -> None:
    whole = served.post(CHATS, {**BODY, "response_format": FORMAT}).json()["choices"][0]["message"]["content"]
    body = {**BODY, "response_format": FORMAT, "stream": True}
    for extra in ({}, {"prediction": {"type": "content", "content": whole + " and more"}}):
        with served.client() as client:
            raw = client.post(CHATS, json={**body, **extra}).text
        chunks = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        assert text == whole
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_structured_outputs_of_other_kinds(served: Served) -> None:
    def ask(**given: Any) -> str:
        body = {"prompt": "the", "max_tokens": 60, "temperature": 1.0, "seed": 1, "structured_outputs": given}
        return served.post("/v1/completions", body).json()["choices"][0]["text"]

    assert re.fullmatch("[0-9]{3}-[a-f]+x", ask(regex="[0-9]{3}-[a-f]{1,9}x"))
    assert ask(choice=["yes (really)", "no"]) in ("yes (really)", "no")
    assert ask(grammar='start: "a" b\nb: "c" | "d"') in ("ac", "ad")
    assert follows(ask(json=SCHEMA))


def test_any_json_object(served: Served) -> None:
    """A random model may not come to an end, but what it says is the beginning of an object."""
    body = {**BODY, "response_format": {"type": "json_object"}, "max_tokens": 20}
    choice = served.post(CHATS, body).json()["choices"][0]
    assert choice["message"]["content"].startswith("{")
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["message"]["content"]), dict)


def test_forced_calls_through_the_official_client(served: Served) -> None:
    with openai.OpenAI(base_url=served.url + "/v1", api_key="x", max_retries=0) as client:
        asked: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "tools": TOOLS, "temperature": 0}
        named = {"type": "function", "function": {"name": "greet"}}
        reply = client.chat.completions.create(**asked, tool_choice=named)
        (call,) = reply.choices[0].message.tool_calls
        assert reply.choices[0].finish_reason == "tool_calls"
        assert reply.choices[0].message.content is None
        assert call.function.name == "greet"
        assert follows(call.function.arguments)
        reply = client.chat.completions.create(**asked, tool_choice="required", parallel_tool_calls=False)
        (call,) = reply.choices[0].message.tool_calls
        assert call.function.name in ("greet", "leave")
        assert isinstance(json.loads(call.function.arguments), dict)
        stream = client.chat.completions.create(**asked, tool_choice="required", stream=True)
        deltas = [chunk.choices[0].delta for chunk in stream]
        pieces = [piece for delta in deltas for piece in delta.tool_calls or ()]
        assert not any(delta.content for delta in deltas)
        assert [piece.function.name for piece in pieces if piece.function.name] == [call.function.name]
        assert "".join(piece.function.arguments for piece in pieces) == call.function.arguments


def test_a_regex_bomb_hurts_nobody(served: Served) -> None:
    """Refused, or followed as far as it goes; either soon, and the others are served meanwhile."""
    plain = {"prompt": "the", "max_tokens": 2, "temperature": 0}
    for bomb in ("((a{1,900}){1,900}){1,900}", "(a|a?)+$" * 200, "(x+x+)+y", "[^\\n]{0,60000}z"):
        start = time.monotonic()
        body = {**plain, "max_tokens": 8, "structured_outputs": {"regex": bomb}}
        assert served.post("/v1/completions", body).status_code in (200, 400)
        assert time.monotonic() - start < 60
        assert served.post("/v1/completions", plain).status_code == 200


def test_tools_may_be_there_and_not_be_called(served: Served) -> None:
    body = {**BODY, "max_tokens": 4, "tools": TOOLS, "tool_choice": "none"}
    assert served.post(CHATS, body).json()["choices"][0]["message"]["content"] is not None
