"""Server-sent events: what the pieces of a stream add up to, and what they never show."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from support.served import Served

PROMPT = "one two three one two three one two three one two"
BODY: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 40, "ignore_eos": True, "temperature": 0.0}
CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "count"}],
    "max_tokens": 24,
    "ignore_eos": True,
    "temperature": 0.9,
    "seed": 8,
}


def events(served: Served, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a stream, whose frames must be as OpenAI's."""
    with served.client() as client:
        response = client.post(path, json={**body, "stream": True})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    frames = response.content.decode("utf-8").split("\n\n")
    assert frames.pop() == ""
    assert frames.pop() == "data: [DONE]"
    assert all(frame.startswith("data: ") for frame in frames)
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def text_of(chunks: list[dict[str, Any]], index: int = 0) -> str:
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return "".join(
        choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices
    )


def test_a_stream_adds_up_to_the_whole(served: Served) -> None:
    whole = served.post("/v1/completions", BODY).json()
    chunks = events(served, "/v1/completions", {**BODY, "stream_options": {"include_usage": True}})
    assert text_of(chunks) == whole["choices"][0]["text"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 40
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "length"
    assert chunks[-1]["metrics"]["speculative_decoding"]["num_verify_steps"] > 0
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_a_chat_stream(served: Served) -> None:
    whole = served.post("/v1/chat/completions", CHAT).json()
    chunks = events(served, "/v1/chat/completions", CHAT)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text_of(chunks) == whole["choices"][0]["message"]["content"]
    assert all(chunk["object"] == "chat.completion.chunk" and chunk["choices"] for chunk in chunks)
    assert "usage" not in chunks[-1]
    assert "metrics" in chunks[-1]
    assert sum("metrics" in chunk for chunk in chunks) == 1


def test_usage_can_run_along(served: Served) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = events(served, "/v1/completions", {**BODY, "stream_options": options})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 40


def test_one_delta_per_step_or_per_token(served: Served) -> None:
    """A prediction that comes true gives several tokens per step: still one piece each, if asked for."""
    text = served.post("/v1/completions", BODY).json()["choices"][0]["text"]
    body = {**BODY, "prediction": {"type": "content", "content": text}, "return_token_ids": True}
    per_step = events(served, "/v1/completions", body)
    per_token = events(
        served, "/v1/completions", {**body, "stream_tokens": True, "include_token_origin": True}
    )
    assert text_of(per_step) == text_of(per_token) == text
    pieces = [choice for chunk in per_token for choice in chunk["choices"] if choice["text"]]
    assert all(len(piece["token_origins"]) == 1 for piece in pieces)
    assert "".join(piece["token_origins"][0]["text"] for piece in pieces) == text
    assert "accepted" in {piece["token_origins"][0]["origin"] for piece in pieces}
    assert len(per_step) < len(per_token)
    ids = [token for chunk in per_step for token in chunk["choices"][0].get("token_ids", ())]
    assert len(ids) == 40


def test_no_part_of_a_stop_string_is_shown(served: Served) -> None:
    plain = served.post("/v1/completions", BODY).json()["choices"][0]["text"]
    stop = plain[9:14]
    body = {**BODY, "stop": [stop], "stream_tokens": True, "include_token_origin": True, "logprobs": 1}
    chunks = events(served, "/v1/completions", body)
    expected = plain[: plain.index(stop)]
    assert text_of(chunks) == expected
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"][0]["stop_reason"] == stop
    origins = [o for chunk in chunks for o in chunk["choices"][0].get("token_origins", ())]
    assert "".join(origin["text"] for origin in origins) == expected


def test_streamed_logprobs_are_those_of_the_whole(served: Served) -> None:
    body = {**CHAT, "logprobs": True, "top_logprobs": 3}
    whole = served.post("/v1/chat/completions", body).json()["choices"][0]
    for extra in ({}, {"stream_tokens": True}):
        chunks = events(served, "/v1/chat/completions", {**body, **extra})
        found = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]]
        entries = [entry for logprobs in found for entry in logprobs["content"]]
        assert entries == whole["logprobs"]["content"]
    assert all(len(entry["top_logprobs"]) == 3 for entry in entries)
    assert (
        b"".join(bytes(entry["bytes"]) for entry in entries).decode("utf-8", "replace")
        == whole["message"]["content"]
    )


def test_several_streams_in_one(served: Served) -> None:
    body = {**BODY, "temperature": 1.0, "seed": 2, "n": 3}
    whole = served.post("/v1/completions", body).json()
    chunks = events(served, "/v1/completions", body)
    for choice in whole["choices"]:
        assert text_of(chunks, choice["index"]) == choice["text"]
    assert sum("metrics" in chunk for chunk in chunks) == 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_blocks(served: Served, stream: bool) -> None:
    """Long replies whose client goes away end within a step: nothing of them is left soon after."""
    body = {**BODY, "max_tokens": 900, "stream": stream, "n": 4, "temperature": 1.0}
    with served.client(timeout=0.3) if not stream else served.client() as client:
        try:
            with client.stream("POST", "/v1/completions", json=body) as response:
                next(response.iter_bytes())
        except Exception as error:
            assert not stream, error
    served.wait_until_idle(20)
    served.llm.engine.check_integrity()
    assert served.post("/v1/completions", BODY).status_code == 200


def test_the_event_loop_is_never_blocked(served: Served) -> None:
    """While long prompts are read and replies written, /health answers quickly, every time."""
    done = threading.Event()

    def load() -> None:
        body = {**BODY, "prompt": "word " * 700, "max_tokens": 100}
        while not done.is_set():
            served.post("/v1/completions", body)

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    slowest = 0.0
    with served.client() as client:
        for _ in range(20):
            start = time.perf_counter()
            assert client.get("/health").status_code == 200
            slowest = max(slowest, time.perf_counter() - start)
            time.sleep(0.01)
    done.set()
    for thread in threads:
        thread.join()
    # Far above what it takes, far below what any of the replies takes on a loaded machine.
    assert slowest < 5.0
