"""A thousand requests come, leave and are cut off at random on a tiny cache: each finished one is as alone.

And nothing of them stays: no block, no place in the batch, no request, no memory. Resident memory is read
whenever a request has ended, and a line fitted through the last half of the readings. What the drafters learn
from replies is kept on purpose, up to a bound (``shared_nodes``, 26 MB by default); here it is a small one
that is full before the readings count, so that the line shows everything else.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from paceline import LLM, SamplingParams
from paceline.drafters.auto import AutoDrafter
from paceline.drafters.auto_options import AutoOptions
from paceline.drafters.eagle3 import Eagle3Drafter, Eagle3Options
from paceline.drafters.suffix import SuffixDrafter, SuffixOptions
from paceline.drafters.verify_cost import VerifyCost
from support.eagle3_heads import tiny_head, write_head
from support.served import Served, serving

REQUESTS = int(os.environ.get("PACELINE_SOAK_REQUESTS", "1000"))
AT_ONCE = 24
MOST_TOKENS = 60
PROMPTS = (
    "one two one two one",
    "the rest of the world",
    "a",
    "in the end it is the same as in the beginning",
)
DRAFTERS = ("none", "ngram", "suffix", "recycle", "eagle3", "auto")
MANNERS = ("whole", "streamed", "cancelled", "left")
SHARED_NODES = 4000
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MOST_BYTES_PER_REQUEST = 3000
"""Seen in eight runs: 940 to 1,850, falling on (500 behind 2,000 requests), which is the allocator settling.
With every ended ``Request`` kept by mistake: 4,470 to 5,150; with every ``Job``: 5,860 to 7,020.
"""


@dataclass(frozen=True, slots=True)
class Job:
    """``patience``: seconds until a client cancels. ``num_chunks``: after how many a reader hangs up."""

    body: dict[str, Any]
    manner: str
    pause: float
    patience: float
    num_chunks: int

    @property
    def key(self) -> tuple[Any, ...]:
        """What the tokens of the reply depend on, but for their number."""
        return self.body["prompt"], self.body["temperature"], self.body.get("seed")


@pytest.fixture(scope="module")
def head_folder(tmp_path_factory: pytest.TempPathFactory, reference: LLM) -> Path:
    """A random head that drafts from the few words that this model's replies are made of."""
    greedy = SamplingParams(temperature=0.0, max_tokens=MOST_TOKENS, ignore_eos=True)
    replies = [output.outputs[0].token_ids for output in reference.generate(list(PROMPTS), greedy)]
    words = Counter(token for reply in replies for token in reply).most_common(12)
    ids = np.array(sorted(token for token, _ in words), np.int32)
    head = replace(tiny_head("plain", seed=5, draft_vocab_size=len(ids)), draft_to_target=ids)
    folder = tmp_path_factory.mktemp("soak") / "head"
    return write_head(folder, head, eagle_aux_hidden_state_layer_ids=[0, 1, 2])


@pytest.fixture(scope="module")
def crowded(served_model: Path, head_folder: Path) -> Iterator[Served]:
    """Six at once on a cache that holds two of the longest: requests are preempted all the time."""
    llm = LLM(served_model, "none", threads=1, max_model_len=96, kv_cache_tokens=192, max_num_requests=6)
    suffix = SuffixOptions(shared_nodes=SHARED_NODES)
    head = llm._load_head(str(head_folder))
    assert head is not None
    free = Eagle3Options(
        verify_cost=VerifyCost((1.0, 1.0001, 1.0002)), step_cost=0.0, catch_up_cost=0.0, width=8, max_depth=3
    )
    llm._ready_made |= {
        "suffix": SuffixDrafter(suffix),
        "auto": AutoDrafter(AutoOptions(suffix=suffix)),
        "eagle3": Eagle3Drafter(head, options=free),
    }
    with serving(llm, max_queue=AT_ONCE) as served:
        yield served


def make(rng: random.Random) -> Job:
    """Return a random request that has one right answer: greedy or seeded, any drafter and draft length."""
    seeded = rng.random() < 0.5
    body: dict[str, Any] = {
        "prompt": rng.choice(PROMPTS),
        "max_tokens": rng.randint(1, MOST_TOKENS),
        "ignore_eos": True,
        "return_token_ids": True,
        "temperature": rng.choice((0.5, 1.0, 1.5)) if seeded else 0.0,
    }
    if seeded:
        body["seed"] = rng.randint(0, 9)
    name = rng.choice(DRAFTERS)
    body["speculative"] = {"enabled": False} if name == "none" else {"drafter": name}
    if name != "none":
        body["speculative"]["num_draft_tokens"] = rng.randint(1, 12)
    return Job(body, rng.choice(MANNERS), rng.expovariate(50.0), rng.uniform(0.0, 0.3), rng.randint(1, 8))


async def ask(client: httpx2.AsyncClient, job: Job) -> list[int] | None:
    """Return the tokens of a reply, ``None`` when the client left before its end."""
    if job.manner == "whole":
        answer = await client.post("/v1/completions", json=job.body)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["choices"][0]["token_ids"])
    if job.manner == "cancelled":
        try:
            async with asyncio.timeout(job.patience):
                await client.post("/v1/completions", json=job.body)
        except TimeoutError:
            pass
        return None
    tokens: list[int] = []
    async with client.stream("POST", "/v1/completions", json={**job.body, "stream": True}) as response:
        assert response.status_code == 200
        number = 0
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                number += 1
                (choice,) = json.loads(line[6:])["choices"]
                tokens += choice.get("token_ids", ())
            if job.manner == "left" and number == job.num_chunks:
                return None  # the client hangs up in the middle
    return tokens


def resident_bytes() -> int:
    """Return the resident memory of this process, which is the server and its clients."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


async def crowd(url: str, jobs: list[Job], readings: list[int]) -> list[list[int] | None]:
    places = asyncio.Semaphore(AT_ONCE)
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=url, timeout=600, trust_env=False, limits=limits) as client:

        async def one(job: Job) -> list[int] | None:
            async with places:
                await asyncio.sleep(job.pause)
                tokens = await ask(client, job)
                readings.append(resident_bytes())
                return tokens

        return await asyncio.gather(*map(one, jobs))


def solo(reference: LLM, job: Job) -> tuple[int, ...]:
    """Return what the model answers to a request alone, without drafts, at the greatest length."""
    params = {name: job.body[name] for name in ("temperature", "seed") if name in job.body}
    whole = SamplingParams(**params, max_tokens=MOST_TOKENS, ignore_eos=True, drafter="none")
    return reference.generate(job.body["prompt"], whole)[0].outputs[0].token_ids


def counted(served: Served) -> dict[str, float]:
    families = text_string_to_metric_families(served.get("/metrics").text)
    return {
        sample.name + sample.labels.get("finished_reason", ""): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_crowd_leaves_nothing_behind_and_changes_nothing(crowded: Served, reference: LLM) -> None:
    rng = random.Random(5)
    jobs = [make(rng) for _ in range(REQUESTS)]
    readings: list[int] = []
    replies = asyncio.run(crowd(crowded.url, jobs, readings))
    crowded.wait_until_idle()
    crowded.llm.engine.check_integrity()
    expected: dict[tuple[Any, ...], tuple[int, ...]] = {}
    finished = [(job, reply) for job, reply in zip(jobs, replies, strict=True) if reply is not None]
    for job, reply in finished:
        if job.key not in expected:
            expected[job.key] = solo(reference, job)
        assert tuple(reply) == expected[job.key][: job.body["max_tokens"]], job
    assert len(finished) > REQUESTS / 3
    for head in crowded.llm._heads.values():
        assert head.pool.num_free == head.pool.num_blocks, "a request kept slots of the draft head"
    figures = counted(crowded)
    assert figures["paceline:num_preemptions_total"] > REQUESTS / 50, "the cache was too large for this test"
    assert figures["paceline:spec_decode_num_accepted_tokens_total"] > REQUESTS, "hardly any draft was right"
    assert figures["paceline:request_success_totalabort"] > REQUESTS / 50, "hardly anyone left"
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert figures[f"paceline:{name}"] == 0, name
    assert slope(readings[len(readings) // 2 :]) < MOST_BYTES_PER_REQUEST


def slope(readings: list[int]) -> float:
    """Return the bytes per reading of the line that fits best."""
    return float(np.polyfit(np.arange(len(readings)), readings, 1)[0])
