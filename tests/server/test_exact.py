"""Replies through the server equal those of LLM.generate, token for token."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from paceline import LLM, SamplingParams
from support.served import Served

PROMPT = "one two three one two three one two three one two"
CHAT = [{"role": "user", "content": "say <|im_end|> twice"}]
CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.8, "seed": 11},
    "filters": {"temperature": 1.2, "seed": 5, "top_p": 0.9, "top_k": 40, "min_p": 0.02},
    "penalties": {
        "temperature": 0.0,
        "repetition_penalty": 1.3,
        "frequency_penalty": 0.4,
        "presence_penalty": -0.3,
    },
    "stops": {"temperature": 0.9, "seed": 3, "stop": ["e", "zz"], "min_tokens": 3},
}


@pytest.mark.parametrize("params", CASES.values(), ids=CASES)
def test_completions_equal_generate(served: Served, reference: LLM, params: dict[str, Any]) -> None:
    (whole,) = reference.generate(PROMPT, SamplingParams(**params, max_tokens=32, ignore_eos=True))
    body = {"prompt": PROMPT, "max_tokens": 32, "ignore_eos": True, "return_token_ids": True, **params}
    choice = served.post("/v1/completions", body).json()["choices"][0]
    assert tuple(choice["token_ids"]) == whole.outputs[0].token_ids
    assert choice["text"] == whole.outputs[0].text
    assert tuple(choice["prompt_token_ids"]) == whole.prompt_token_ids


def test_a_chat_equals_chat(served: Served, reference: LLM) -> None:
    (whole,) = reference.chat(CHAT, SamplingParams(temperature=0.7, seed=4, max_tokens=24, ignore_eos=True))
    body = {"messages": CHAT, "temperature": 0.7, "seed": 4, "max_completion_tokens": 24, "ignore_eos": True}
    reply = served.post("/v1/chat/completions", {**body, "return_token_ids": True}).json()
    assert tuple(reply["choices"][0]["token_ids"]) == whole.outputs[0].token_ids
    assert reply["choices"][0]["message"]["content"] == whole.outputs[0].text
    assert reply["usage"]["prompt_tokens"] == len(whole.prompt_token_ids)


def test_drafters_change_nothing(served: Served) -> None:
    texts, drafted = set(), []
    for speculative in (
        {"enabled": False},
        {"drafter": "ngram", "num_draft_tokens": 3},
        {"drafter": "suffix"},
        {"drafter": "recycle", "num_draft_tokens": 12},
        {"enabled": True},
    ):
        body = {"prompt": PROMPT, "max_tokens": 40, "ignore_eos": True, "seed": 9, "speculative": speculative}
        reply = served.post("/v1/completions", body).json()
        texts.add(reply["choices"][0]["text"])
        drafted.append(reply["metrics"]["speculative_decoding"]["num_draft_tokens"])
    assert len(texts) == 1
    assert drafted[0] == 0 < drafted[1]


def test_completions_of_several_prompts(served: Served, reference: LLM) -> None:
    """Choices are ordered by prompt and then by completion; a seed is counted on for each completion."""
    params = SamplingParams(n=2, temperature=1.0, seed=5, max_tokens=8, ignore_eos=True)
    outputs = reference.generate(["the", [7, 8, 9]], params)
    body = {"prompt": ["the", "a"], "n": 2, "seed": 5, "max_tokens": 8, "ignore_eos": True}
    body["prompt"] = [reference.tokenizer.encode("the"), [7, 8, 9]]
    reply = served.post("/v1/completions", {**body, "return_token_ids": True}).json()
    expected = [output.token_ids for whole in outputs for output in whole.outputs]
    assert [tuple(choice["token_ids"]) for choice in reply["choices"]] == expected
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2, 3]
    assert reply["usage"]["prompt_tokens"] == sum(len(whole.prompt_token_ids) for whole in outputs)
    assert reply["usage"]["completion_tokens"] == 32


def test_greedy_takes_what_openai_clients_send_along(served: Served) -> None:
    """top_p and the like at temperature 0 change nothing. The library refuses them, but clients send them."""
    body = {"prompt": PROMPT, "max_tokens": 12, "ignore_eos": True, "temperature": 0}
    plain = served.post("/v1/completions", body).json()["choices"][0]["text"]
    reply = served.post("/v1/completions", {**body, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "n": 2}).json()
    assert [choice["text"] for choice in reply["choices"]] == [plain, plain]


def test_echo(served: Served, reference: LLM) -> None:
    body = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0}
    plain = served.post("/v1/completions", body).json()["choices"][0]["text"]
    assert (
        served.post("/v1/completions", {**body, "echo": True}).json()["choices"][0]["text"] == PROMPT + plain
    )
    ids = reference.tokenizer.encode(PROMPT)
    echoed = served.post("/v1/completions", {**body, "prompt": ids, "echo": True}).json()
    assert echoed["choices"][0]["text"] == PROMPT + plain


def test_an_id_of_a_request_that_runs_may_come_again(served: Served) -> None:
    """The engine's ids were made of the client's ``X-Request-Id`` alone: who sent one that was in use ended
    the other request, and could be sent its text.
    """
    bodies = [
        {"prompt": text, "max_tokens": 200, "temperature": 0, "ignore_eos": True} for text in ("ab", "ba")
    ]
    alone = [served.post("/v1/completions", body).json()["choices"][0]["text"] for body in bodies]
    with ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(served.post, "/v1/completions", body, headers={"X-Request-Id": "mine"})
            for body in bodies * 4
        ]
        answers = [answer.result() for answer in asked]
    assert [answer.status_code for answer in answers] == [200] * 8
    assert [answer.json()["choices"][0]["text"] for answer in answers] == alone * 4
