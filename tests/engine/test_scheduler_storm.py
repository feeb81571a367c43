"""A thousand requests come and go on a cache that is too small: nothing leaks, and no reply can tell."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.drafters.base import Drafter
from paceline.drafters.scripted import ScriptedDrafter
from paceline.engine.outputs import CompletionOutput
from paceline.engine.request import Request
from paceline.engine.terms import QueueTerms
from paceline.kv.prefix_cache import BlockKeys
from paceline.sampling.params import SamplingParams
from support.engines import Rig, make_rig, random_script, run_alone
from support.fake_executor import FakeExecutor

NUM_REQUESTS = 1000


@dataclass(frozen=True)
class Kind:
    """A prompt and its sampling; replies of one kind are all the same."""

    prompt: tuple[int, ...]
    temperature: float
    seed: int | None
    max_tokens: int

    def params(self, **drafting: object) -> SamplingParams:
        return SamplingParams(  # type: ignore[arg-type]
            temperature=self.temperature, seed=self.seed, max_tokens=self.max_tokens, **drafting
        )


def kinds(rng: random.Random) -> list[Kind]:
    stems = [tuple(rng.randint(1, 11) for _ in range(16)) for _ in range(4)]
    made = []
    for _ in range(40):
        tail = tuple(rng.randint(1, 11) for _ in range(rng.randint(0, 6)))
        temperature = rng.choice([0.0, 0.7, 1.3])
        seed = None if temperature == 0 else rng.randint(0, 10**9)
        stem = rng.choice(stems)[: rng.randint(1, 16)]
        made.append(Kind(stem + tail, temperature, seed, rng.randint(1, 16)))
    return made


class Storm:
    """Sends requests of random kinds and cancels some, before they run, while they run, in the middle."""

    def __init__(self, rig: Rig, drafters: list[str], rng: random.Random) -> None:
        self.rig, self.drafters, self.rng = rig, drafters, rng
        self.kinds = kinds(rng)
        self.alone: dict[Kind, CompletionOutput] = {}
        self.running: dict[str, Kind] = {}
        self.num_done = self.num_cancelled = self.num_preemptions = 0

    def send(self, number: int) -> None:
        rng, kind = self.rng, self.rng.choice(self.kinds)
        drafting: dict[str, object] = {"drafter": rng.choice(self.drafters)}
        if drafting["drafter"] != "none":
            drafting["num_draft_tokens"] = rng.randint(1, 7)
        terms = QueueTerms(priority=rng.choice([0, 0, 0, 1, -1]), client=rng.choice("abcd"))
        self.rig.engine.add_request(str(number), kind.prompt, kind.params(**drafting), terms)
        self.running[str(number)] = kind

    def cancel(self) -> None:
        name = self.rng.choice(list(self.running))
        assert self.rig.engine.abort(name) is not None
        del self.running[name]
        self.num_cancelled += 1

    def step(self) -> None:
        self.rig.step()
        for name, reply in self.rig.done.items():
            self.check(self.running.pop(name), reply)
        self.rig.done.clear()
        self.rig.deltas.clear()
        self.rig.executor.batches.clear()

    def check(self, kind: Kind, reply: CompletionOutput) -> None:
        if kind not in self.alone:
            self.alone[kind] = run_alone(kind.prompt, kind.params())
        alone = self.alone[kind]
        assert (reply.token_ids, reply.text) == (alone.token_ids, alone.text)
        assert reply.logit_hashes == alone.logit_hashes
        self.num_done += 1
        self.num_preemptions += reply.metrics.num_preemptions

    def blow(self) -> Iterator[int]:
        """Yield after each request that was sent."""
        for number in range(NUM_REQUESTS):
            self.send(number)
            for _ in range(self.rng.choice([0, 0, 1, 2, 6])):
                self.step()
            if self.running and self.rng.random() < 0.25:
                self.cancel()
            yield number
        while self.rig.engine.has_unfinished:
            self.step()


def num_alive() -> int:
    """Requests, and the keys of their blocks, that anybody still holds."""
    # By type: isinstance asks each object for its class, and deprecated names of torch answer with a warning.
    return sum(type(thing) in (Request, BlockKeys) for thing in gc.get_objects())


def test_a_thousand_requests_leave_every_reply_right_and_nothing_behind() -> None:
    rng = random.Random(5)
    executor = FakeExecutor(num_blocks=18, block_size=4)
    known: dict[str, Drafter] = {
        name: ScriptedDrafter(random_script(seed, right, 0.3, executor), name=name)
        for seed, (name, right) in enumerate({"often": 0.9, "seldom": 0.2}.items())
    }
    rig = make_rig(known, executor=executor, max_num_requests=6, max_batch_tokens=24, max_model_len=48)
    storm = Storm(rig, ["none", *known], rng)
    for number in storm.blow():
        if number % 250 == 249:
            gc.collect()
            assert num_alive() == 2 * len(storm.running)
    assert storm.num_done + storm.num_cancelled == NUM_REQUESTS
    assert storm.num_cancelled > 100
    assert storm.num_preemptions > 20
    load = rig.engine.load
    assert (load.num_running, load.num_waiting, load.num_free_blocks) == (0, 0, load.num_blocks)
    assert load.num_prefix_hits > load.num_prefix_queries // 10
    assert not storm.running
