"""Many requests that come, leave and are cut off at random on a tiny cache: every finished one is as alone.

``PACELINE_SOAK_REQUESTS`` sets their number: 1,000 where time is no matter, fewer in the ordinary run.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from paceline import LLM, SamplingParams
from support.served import Served, serving

REQUESTS = int(os.environ.get("PACELINE_SOAK_REQUESTS", "120"))
AT_ONCE = 24
PROMPTS = (
    "one two one two one",
    "the rest of the world",
    "a",
    "in the end it is the same as in the beginning",
)
DRAFTERS = ("none", "ngram", "suffix", "recycle", "auto")


@pytest.fixture(scope="module")
def crowded(served_model: Path) -> Iterator[Served]:
    """Six at once on a cache that holds two of the longest: requests are preempted all the time."""
    llm = LLM(served_model, threads=1, max_model_len=160, kv_cache_tokens=320, max_num_requests=6)
    with serving(llm, max_queue=REQUESTS) as served:
        yield served


def make(rng: random.Random) -> dict[str, Any]:
    """Return a random request that has one right answer."""
    body: dict[str, Any] = {
        "prompt": rng.choice(PROMPTS),
        "max_tokens": rng.randint(1, 100),
        "ignore_eos": True,
    }
    if rng.random() < 0.5:
        body["temperature"] = 0.0
    else:
        body |= {"temperature": rng.choice((0.5, 1.0, 1.5)), "seed": rng.randint(0, 9)}
    name = rng.choice(DRAFTERS)
    body["speculative"] = {"enabled": False} if name == "none" else {"drafter": name}
    if name != "none":
        body["speculative"]["num_draft_tokens"] = rng.randint(1, 12)
    return body


async def ask(client: httpx2.AsyncClient, body: dict[str, Any], manner: str, patience: float) -> str | None:
    """Return the text of a reply, ``None`` when the client left before its end."""
    if manner == "whole":
        answer = await client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["text"])
    if manner == "cancelled":
        try:
            async with asyncio.timeout(patience):
                await client.post("/v1/completions", json=body)
        except TimeoutError:
            pass
        return None
    async with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
        async for _ in response.aiter_bytes():
            return None  # the client hangs up in the middle
    return None


async def crowd(url: str, jobs: list[tuple[dict[str, Any], str, float]]) -> list[str | None]:
    places = asyncio.Semaphore(AT_ONCE)
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=url, timeout=600, trust_env=False, limits=limits) as client:

        async def one(job: tuple[dict[str, Any], str, float]) -> str | None:
            async with places:
                await asyncio.sleep(job[2] / 10)
                return await ask(client, *job)

        return await asyncio.gather(*map(one, jobs))


def test_a_crowd_leaves_nothing_behind_and_changes_nothing(crowded: Served, reference: LLM) -> None:
    rng = random.Random(5)
    manners = ("whole", "whole", "cancelled", "left")
    jobs = [(make(rng), rng.choice(manners), rng.uniform(0.0, 0.5)) for _ in range(REQUESTS)]
    texts = asyncio.run(crowd(crowded.url, jobs))
    crowded.wait_until_idle()
    crowded.llm.engine.check_integrity()
    expected: dict[tuple[Any, ...], str] = {}
    compared = 0
    for (body, manner, _), text in zip(jobs, texts, strict=True):
        if manner != "whole":
            continue
        key = (body["prompt"], body.get("temperature"), body.get("seed"))
        if key not in expected:
            params = {name: body[name] for name in ("temperature", "seed") if name in body}
            whole = SamplingParams(**params, max_tokens=100, ignore_eos=True, drafter="none")
            expected[key] = reference.generate(body["prompt"], whole)[0].outputs[0].text
        assert text is not None
        # Half a character at the end of the shorter reply stands as U+FFFD.
        assert expected[key].startswith(text.rstrip("\ufffd"))
        compared += 1
    assert compared > REQUESTS / 4
    metrics = crowded.get("/metrics").text
    assert "paceline:num_preemptions_total" in metrics
    assert 'paceline:request_success_total{engine="0",finished_reason="abort"' in metrics
