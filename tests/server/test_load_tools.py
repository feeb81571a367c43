"""What ``vllm bench serve``, guidellm and aiperf send and read, looked up in their sources in November 2026.

None of them is installed here: each test does on the wire what the tool does.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from paceline import LLM
from support.served import Brake, Served, serving

PROMPT = "one two three one two three one two three one two"
NUM_TOKENS = 24


@pytest.fixture(scope="module")
def llm(served_model: Path) -> LLM:
    return LLM(served_model, "ngram", threads=1)


@pytest.fixture(scope="module")
def brake(llm: LLM) -> Brake:
    return Brake(llm)


@pytest.fixture(scope="module")
def served(llm: LLM, brake: Brake) -> Iterator[Served]:
    with serving(llm, metrics_compat="vllm") as served:
        yield served


def chunks_of(served: Served, path: str, body: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    """Return the chunks of a stream, read line by line as the tools do."""
    with served.client() as client, client.stream("POST", path, json=body, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert all(line.startswith("data: {") for line in lines[:-1])
    return [json.loads(line[6:]) for line in lines[:-1]]


# ---- vllm bench serve ----


def spec_decode_sums(text: str) -> dict[str, int]:
    """Add up ``vllm:spec_decode*`` lines as ``vllm bench serve`` does: by what a line contains, in order."""
    sums: dict[str, int] = {}
    for line in text.splitlines():
        if not line.startswith("vllm:spec_decode"):
            continue
        kinds = ("num_drafts", "num_draft_tokens", "num_accepted_tokens_per_pos", "num_accepted_tokens")
        kind = next(kind for kind in kinds if kind in line)
        if kind.endswith("per_pos"):
            kind += line.partition('position="')[2].partition('"')[0]
        sums[kind] = sums.get(kind, 0) + int(float(line.split()[-1]))
    return sums


def test_vllm_bench_finds_tokens_usage_and_acceptance(served: Served) -> None:
    before = spec_decode_sums(served.get("/metrics").text)
    completions = {
        "model": "tiny",
        "prompt": PROMPT,
        "repetition_penalty": 1.0,
        "max_tokens": NUM_TOKENS,
        "logprobs": None,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "temperature": 0.0,
    }
    chats = {
        "model": "tiny",
        "messages": [{"role": "user", "content": [{"type": "text", "text": PROMPT}]}],
        "max_completion_tokens": NUM_TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "temperature": 0.0,
    }
    drafted = accepted = 0
    for path, body in (("/v1/completions", completions), ("/v1/chat/completions", chats)):
        *told, last = chunks_of(served, path, body, **{"x-request-id": "bench-1a2b3c4d-0"})
        assert all(chunk["choices"] for chunk in told), "only the last chunk may have no choices"
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == NUM_TOKENS
        assert last["usage"]["prompt_tokens"] > 0
        drafted += last["metrics"]["speculative_decoding"]["num_draft_tokens"]
        accepted += last["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"]
    after = spec_decode_sums(served.get("/metrics").text)
    delta = {kind: after[kind] - before.get(kind, 0) for kind in after}
    assert delta["num_draft_tokens"] == drafted > 0
    assert delta["num_accepted_tokens"] == accepted
    per_position = [n for kind, n in delta.items() if kind.startswith("num_accepted_tokens_per_pos")]
    assert sum(per_position) == accepted
    assert delta["num_drafts"] >= max(per_position, default=0)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_the_first_chunk_comes_with_the_first_token(served: Served, brake: Brake, path: str) -> None:
    """The chunk with the role was sent as soon as a request was queued, and ``vllm bench serve``, which takes
    the first chunk with choices for the first token, measured a time to first token of about nothing.
    """
    body = {"prompt": "a"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "a"}]}
    data = json.dumps({**body, "max_tokens": 3, "ignore_eos": True, "stream": True}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
    address = urlsplit(served.url)
    brake.go.clear()
    try:
        with socket.create_connection((address.hostname, address.port), 60) as raw:
            raw.sendall(head.encode() + f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
            early = raw.recv(65536)
            raw.settimeout(0.5)
            with pytest.raises(TimeoutError):
                early += raw.recv(65536)
            assert early.startswith(b"HTTP/1.1 200")
            assert b"data:" not in early, "there is no token yet"
            brake.go.set()
            raw.settimeout(60)
            whole = early + b"".join(iter(lambda: raw.recv(65536), b""))
    finally:
        brake.go.set()
    assert b"data: [DONE]" in whole
    assert (b'"role":"assistant"' in whole) == (path == "/v1/chat/completions")


# ---- guidellm ----


def test_guidellm_validates_and_counts(served: Served) -> None:
    assert served.get("/health").status_code == 200
    assert served.get("/v1/models").json()["data"][0]["id"] == "tiny"
    options = {"include_usage": True, "continuous_usage_stats": True}
    common = {"model": "tiny", "stream": True, "stream_options": options, "stop": None, "ignore_eos": True}
    for path, body in (
        ("/v1/completions", {"prompt": PROMPT, "max_tokens": NUM_TOKENS}),
        (
            "/v1/chat/completions",
            {
                "messages": [
                    {"role": "system", "content": "be brief"},
                    {"role": "user", "content": [{"type": "text", "text": PROMPT}]},
                ],
                "max_completion_tokens": NUM_TOKENS,
            },
        ),
    ):
        chunks = chunks_of(served, path, {**common, **body})
        usage = [chunk["usage"] for chunk in chunks if chunk.get("usage")][-1]
        assert usage["completion_tokens"] == NUM_TOKENS
        assert usage["prompt_tokens"] > 0
        first = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
        assert "".join(c.get("text") or c.get("delta", {}).get("content") or "" for c in first)


# ---- aiperf ----


def test_aiperf_finds_tokens_speculation_and_server_metrics(served: Served) -> None:
    body = {
        "messages": [{"role": "user", "content": PROMPT}],
        "model": "tiny",
        "stream": True,
        "max_completion_tokens": NUM_TOKENS,
        "stream_options": {"include_usage": True},
    }
    chunks = chunks_of(served, "/v1/chat/completions", body)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert isinstance(chunks[-1]["metrics"]["speculative_decoding"], dict)
    whole = {name: value for name, value in body.items() if not name.startswith("stream")}
    reply = served.post("/v1/chat/completions", whole).json()
    assert reply["object"] == "chat.completion"
    assert isinstance(reply["metrics"]["speculative_decoding"], dict)
    answer = served.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    families = list(text_string_to_metric_families(answer.text))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "a family told twice is refused by parsers"
    for family in families:
        if family.type == "histogram":
            check_histogram(family)


def check_histogram(family: Any) -> None:
    """Fail unless buckets rise to the count, and count and sum are there."""
    values: dict[str, list[float]] = {}
    for sample in family.samples:
        values.setdefault(sample.name.removeprefix(family.name), []).append(sample.value)
    assert set(values) == {"_bucket", "_count", "_sum"}, family.name
    assert values["_bucket"] == sorted(values["_bucket"])
    assert values["_bucket"][-1] == values["_count"][0]
