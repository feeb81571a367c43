"""The exact law of what an engine puts out: every branch of its code, weighed by the theory's enumerator."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paceline.config import SpecConfig
from paceline.drafters.base import Drafter
from paceline.records import FloatArray, TokenLaw
from paceline.sampling.params import SamplingParams
from paceline.sampling.reference import filtered_law
from paceline.theory.chance import Chance as TheoryChance
from paceline.theory.enumeration import outcomes
from support.engines import make_rig
from support.fake_executor import FakeExecutor, path_logits

SequenceLaw = dict[tuple[int, ...], float]


@dataclass(frozen=True)
class EnumeratedChance:
    """The engine's chance, answered by the theory's enumerator: each draw takes every branch."""

    chance: TheoryChance

    def accepts(self, probability: float, root: int, depth: int) -> bool:
        return self.chance.accept(probability, 0)

    def draw(self, law: TokenLaw, position: int) -> int:
        return int(law.ids[self.chance.draw(law.probs, 0)])

    def draw_draft(self, law: TokenLaw, root: int, depth: int) -> int:
        return self.draw(law, root)

    def draw_coupled(self, law: TokenLaw, position: int) -> int:
        return self.draw(law, position)


def engine_law(
    executor: FakeExecutor,
    drafter: Drafter,
    spec: SpecConfig,
    params: SamplingParams,
    prompt: tuple[int, ...],
) -> SequenceLaw:
    """Return the exact law of the reply's token ids under the engine."""

    def run(chance: TheoryChance) -> tuple[int, ...]:
        rig = make_rig(
            {drafter.name: drafter}, executor=executor, spec=spec, chance=lambda _: EnumeratedChance(chance)
        )
        rig.engine.add_request("0", prompt, params)
        return rig.finish()["0"].token_ids

    law: SequenceLaw = {}
    for tokens, weight in outcomes(run):
        law[tokens] = law.get(tokens, 0.0) + weight
    return law


def target_law(
    executor: FakeExecutor,
    params: SamplingParams,
    prompt: tuple[int, ...],
    process: Callable[[FloatArray, tuple[int, ...], tuple[int, ...]], FloatArray],
) -> SequenceLaw:
    """Return the law of ``params.max_tokens`` tokens by definition: a product of filtered laws.

    ``process(logits, prompt, reply so far)`` applies penalties and masks.
    """
    assert params.max_tokens is not None
    law: SequenceLaw = {}
    for reply in itertools.product(range(executor.vocab_size), repeat=params.max_tokens):
        weight = 1.0
        for depth, token in enumerate(reply):
            logits = path_logits((*prompt, *reply[:depth]), executor.vocab_size, executor.spread)
            row = process(logits, prompt, reply[:depth])
            weight *= filtered_law(row, params.temperature, params.top_k, params.top_p, params.min_p).prob(
                token
            )
        if weight > 0.0:
            law[reply] = weight
    return law


def total_variation(p: SequenceLaw, q: SequenceLaw) -> float:
    """Return half the sum of absolute differences."""
    return 0.5 * float(sum(abs(p.get(key, 0.0) - q.get(key, 0.0)) for key in {*p, *q}))


def naive_process(params: SamplingParams) -> Callable[..., FloatArray]:
    """Return the processors as written in their papers, token by token, float32 throughout."""

    def process(logits: FloatArray, prompt: tuple[int, ...], reply: tuple[int, ...]) -> FloatArray:
        row = logits.copy()
        if len(reply) < params.min_tokens:
            row[list(params.stop_ids)] = -np.inf
        for token, bias in (params.logit_bias or {}).items():
            row[token] += np.float32(bias)
        for token in {*prompt, *reply}:
            scale = np.float32(params.repetition_penalty)
            row[token] = row[token] / scale if row[token] > 0 else row[token] * scale
        for token in set(reply):
            row[token] -= np.float32(params.frequency_penalty) * np.float32(reply.count(token))
            row[token] -= np.float32(params.presence_penalty)
        return row

    return process
