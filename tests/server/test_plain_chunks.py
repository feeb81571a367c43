"""Chunks of plain text are put together from bytes that were made once; they equal those made whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paceline.models.tokenizer import Tokenizer
from paceline.sampling.params import SamplingParams
from paceline.server.compose import Composer
from paceline.server.job import Job, Part
from paceline.server.replies import Head
from paceline.server.schema import ChatRequest, CompletionRequest

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"stream_options": {"include_usage": True}},
    {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
)
TEXTS = ("a", '"\\\n\x00', "café 漢字 \U0001f600", "\x00text\x00", "data: {}\n\n", "\u2028")


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("is_chat", [True, False])
@pytest.mark.parametrize("n", [1, 2])
def test_a_plain_chunk_is_the_chunk_that_is_made_whole(
    options: dict[str, Any], is_chat: bool, n: int
) -> None:
    body = {"model": "tiny", "stream": True, "n": n, **options}
    request: ChatRequest | CompletionRequest
    if is_chat:
        request = ChatRequest.model_validate({**body, "messages": [{"role": "user", "content": "hi"}]})
    else:
        request = CompletionRequest.model_validate({**body, "prompt": "hi"})
    parts = [Part(index, f"r-{index}", (1, 2, 3), SamplingParams()) for index in range(n)]
    head = Head("chatcmpl-x", 1_700_000_000, 'a "model"', "fp_0")
    tokenizer: Tokenizer = None  # type: ignore[assignment]  # plain text needs none
    composer = Composer(request, Job("r", parts), head, tokenizer)
    for number, text in enumerate(TEXTS):
        for part in parts:
            part.num_tokens = number
            data = composer._plain_chunk(part, text)
            assert data == composer._chunk(part, composer._delta(part, text))
            assert json.loads(data.removeprefix(b"data: "))["choices"][0]["index"] == part.index
