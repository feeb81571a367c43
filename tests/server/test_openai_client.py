"""The official client of OpenAI, unchanged, against the real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

openai = pytest.importorskip("openai")

from support.served import Served  # noqa: E402

MESSAGES: list[Any] = [{"role": "user", "content": "count to three"}]
SETTINGS: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_completion_tokens": 24}
FIXED: dict[str, Any] = {**SETTINGS, "temperature": 0.7, "seed": 3, "extra_body": {"ignore_eos": True}}


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    with openai.OpenAI(base_url=served.url + "/v1", api_key="unused", max_retries=0) as client:
        yield client


def test_whole_and_streamed(client: Any) -> None:
    whole = client.chat.completions.create(**FIXED)
    assert whole.choices[0].message.role == "assistant"
    assert whole.usage.completion_tokens == 24
    stream = client.chat.completions.create(**FIXED, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].model_extra["metrics"]["speculative_decoding"]["num_verify_steps"] > 0


def test_logprobs(client: Any) -> None:
    reply = client.chat.completions.create(**FIXED, logprobs=True, top_logprobs=2)
    content = reply.choices[0].logprobs.content
    assert b"".join(bytes(token.bytes) for token in content).decode("utf-8", "replace") == (
        reply.choices[0].message.content
    )
    assert all(len(token.top_logprobs) == 2 and token.logprob <= 0 for token in content)


def test_several_choices_and_legacy_completions(client: Any) -> None:
    reply = client.chat.completions.create(**FIXED, n=2)
    assert [choice.index for choice in reply.choices] == [0, 1]
    plain = client.completions.create(
        model="tiny", prompt="the rest", max_tokens=4, temperature=0, logprobs=1
    )
    assert plain.object == "text_completion"
    assert plain.choices[0].logprobs.text_offset[0] == 0
    assert client.completions.create(model="tiny", prompt="the", temperature=0).usage.completion_tokens <= 16


def test_predicted_outputs(client: Any) -> None:
    plain = client.chat.completions.create(**FIXED)
    text = plain.choices[0].message.content
    drafted = client.chat.completions.create(**FIXED, prediction={"type": "content", "content": text})
    assert drafted.choices[0].message.content == text
    details = drafted.usage.completion_tokens_details
    assert details.accepted_prediction_tokens > 0
    assert details.rejected_prediction_tokens >= 0
    wrong = client.chat.completions.create(**FIXED, prediction={"type": "content", "content": "zebra " * 20})
    assert wrong.choices[0].message.content == text
    details = wrong.usage.completion_tokens_details
    assert details.rejected_prediction_tokens > details.accepted_prediction_tokens


def test_models_and_errors(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "paceline"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(**{**SETTINGS, "model": "gpt-9"})
    with pytest.raises(openai.BadRequestError, match="logit_bias") as caught:
        client.chat.completions.create(**SETTINGS, logit_bias={"99999999": 5})
    assert caught.value.param == "logit_bias"
    with pytest.raises(openai.BadRequestError, match="embedding"):
        client.embeddings.create(model="tiny", input="a")


def test_asynchronous(served: Served) -> None:
    async def both() -> tuple[str, str]:
        async with openai.AsyncOpenAI(base_url=served.url + "/v1", api_key="x", max_retries=0) as client:
            whole, stream = await asyncio.gather(
                client.chat.completions.create(**FIXED),
                client.chat.completions.create(**FIXED, stream=True),
            )
            text = ""
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
            return whole.choices[0].message.content, text

    whole, streamed = asyncio.run(both())
    assert whole == streamed
