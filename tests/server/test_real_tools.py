"""Functions, schemas and streams through the official clients, both of them, against the real model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from paceline import LLM
from support.served import Served, serving

openai = pytest.importorskip("openai")
pytestmark = pytest.mark.real_model

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {"name": name, "description": f"The {what} in a city.", "parameters": CITY},
    }
    for name, what in (("get_weather", "weather"), ("get_time", "time"))
]


def called(*calls: tuple[str, str], said: str | None = None) -> dict[str, Any]:
    """Return an assistant's message that calls functions with cities."""
    made = [
        {
            "id": f"c{index}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps({"city": city})},
        }
        for index, (name, city) in enumerate(calls)
    ]
    return {"role": "assistant", "content": said, "tool_calls": made}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


ONE: list[Any] = [
    user("What is the weather in Paris?"),
    called(("get_weather", "Paris")),
    user("What is the weather in Oslo?"),
    called(("get_weather", "Oslo")),
    user("What is the time in Madrid?"),
    called(("get_time", "Madrid")),
    user("What is the weather in Rome?"),
]
TWO: list[Any] = [
    user("What is the weather in Paris and in Lima?"),
    called(("get_weather", "Paris"), ("get_weather", "Lima"), said="I will look."),
    user("What is the weather in Oslo and in Bern?"),
    called(("get_weather", "Oslo"), ("get_weather", "Bern"), said="I will look."),
    user("What is the weather in Rome and in Cairo?"),
]
"""Turns that show this small model how to call; it would not by itself."""
ASKED: dict[str, Any] = {"model": "smollm2-135m", "temperature": 0, "max_tokens": 100}


@pytest.fixture(scope="module")
def real(smollm2_path: Path) -> Iterator[Served]:
    with serving(LLM(smollm2_path, threads=1), model_names=("smollm2-135m",)) as served:
        yield served


@pytest.fixture
def client(real: Served) -> Iterator[Any]:
    with openai.OpenAI(base_url=real.url + "/v1", api_key="unused", max_retries=0) as client:
        yield client


def calls_of(message: Any) -> list[tuple[str, str]]:
    return [(call.function.name, json.loads(call.function.arguments)["city"]) for call in message.tool_calls]


def test_the_model_calls_of_its_own_accord(client: Any) -> None:
    """Drafts change nothing; the streamed calls are those of the whole reply."""
    asked = {**ASKED, "parallel_tool_calls": True}
    for messages, expected, said in (
        (ONE, [("get_weather", "Rome")], None),
        (TWO, [("get_weather", "Rome"), ("get_weather", "Cairo")], "I will look."),
    ):
        for speculative in (
            {"enabled": False},
            {"drafter": "suffix"},
            {"drafter": "recycle"},
            {"enabled": True},
        ):
            extra = {"speculative": speculative}
            reply = client.chat.completions.create(messages=messages, tools=TOOLS, extra_body=extra, **asked)
            (choice,) = reply.choices
            assert choice.finish_reason == "tool_calls"
            assert choice.message.content == said
            assert calls_of(choice.message) == expected
        with client.chat.completions.stream(messages=messages, tools=TOOLS, **asked) as stream:
            events = list(stream)
            final = stream.get_final_completion()
        assert calls_of(final.choices[0].message) == expected
        assert (final.choices[0].message.content or None) == said
        assert any(event.type == "tool_calls.function.arguments.done" for event in events)


def test_the_choices_of_a_tool(client: Any) -> None:
    """Not told to call in parallel, this model calls once: it has no form of its own."""
    one = client.chat.completions.create(messages=TWO, tools=TOOLS, **ASKED)
    assert calls_of(one.choices[0].message) == [("get_weather", "Rome")]
    named = {"type": "function", "function": {"name": "get_time"}}
    reply = client.chat.completions.create(messages=ONE, tools=TOOLS, tool_choice=named, **ASKED)
    assert [name for name, _ in calls_of(reply.choices[0].message)] == ["get_time"]
    bare = [user("What is the weather in Rome?")]
    forced = client.chat.completions.create(messages=bare, tools=TOOLS, tool_choice="required", **ASKED)
    assert forced.choices[0].finish_reason == "tool_calls"
    assert calls_of(forced.choices[0].message) == [("get_weather", "Rome")]
    hello = [user("Say hello.")]
    for choice in ("auto", "none"):
        reply = client.chat.completions.create(messages=hello, tools=TOOLS, tool_choice=choice, **ASKED)
        assert reply.choices[0].message.tool_calls is None
        assert reply.choices[0].message.content


class Town(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    large: bool


def test_a_schema_from_a_class(client: Any) -> None:
    reply = client.chat.completions.parse(
        messages=[user("Describe Paris as JSON.")], response_format=Town, **ASKED
    )
    assert isinstance(reply.choices[0].message.parsed, Town)


def test_asynchronous(real: Served, client: Any) -> None:
    """Whole, streamed, with functions, with a schema and with a prediction, all at once."""
    schema = {"type": "json_schema", "json_schema": {"name": "town", "schema": Town.model_json_schema()}}
    kinds: list[dict[str, Any]] = [
        {"messages": [user("Name three colours.")]},
        {"messages": ONE, "tools": TOOLS},
        {"messages": [user("Describe Paris as JSON.")], "response_format": schema},
        {"messages": [user("Count to five.")], "prediction": {"type": "content", "content": "1, 2, 3, 4, 5"}},
    ]
    alone = [client.chat.completions.create(**kind, **ASKED).choices[0].message for kind in kinds]

    async def streamed(asynchronous: Any, kind: dict[str, Any]) -> tuple[str, str]:
        text = arguments = ""
        async for chunk in await asynchronous.chat.completions.create(**kind, **ASKED, stream=True):
            delta = chunk.choices[0].delta
            text += delta.content or ""
            arguments += "".join(call.function.arguments for call in delta.tool_calls or ())
        return text, arguments

    async def everything() -> tuple[list[Any], list[tuple[str, str]]]:
        async with openai.AsyncOpenAI(base_url=real.url + "/v1", api_key="x", max_retries=0) as asynchronous:
            whole = [asynchronous.chat.completions.create(**kind, **ASKED) for kind in kinds]
            streams = [streamed(asynchronous, kind) for kind in kinds]
            replies = await asyncio.gather(*whole, *streams)
        return [reply.choices[0].message for reply in replies[: len(kinds)]], replies[len(kinds) :]

    whole, streams = asyncio.run(everything())
    for one, message, (text, arguments) in zip(alone, whole, streams, strict=True):
        assert message.content == one.content
        assert text == (one.content or "")
        made = [call.function.arguments for call in one.tool_calls or ()]
        assert [call.function.arguments for call in message.tool_calls or ()] == made
        assert arguments == "".join(made)
