"""Engines over the fake executor, scripts for the scripted drafter, and a call that runs all to the end."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from paceline.config import EngineConfig, SpecConfig
from paceline.drafters.base import Drafter, TokenSampler
from paceline.drafters.none import NoneDrafter
from paceline.drafters.scripted import Script, ScriptedDrafter
from paceline.engine.engine import Engine
from paceline.engine.outputs import CompletionOutput, StepOutput
from paceline.records import EMPTY_DRAFT, Draft
from paceline.sampling.chance import Chance, SeededChance
from paceline.sampling.params import SamplingParams
from paceline.tree import ROOT, TokenTree
from support.fake_executor import FakeExecutor, path_logits

EOS = 0


class LetterDecoder:
    """Token t is the letter of the alphabet with that number; EOS is special."""

    def token_bytes(self, token_id: int, *, skip_special: bool = True) -> bytes:
        if token_id == EOS:
            return b"" if skip_special else b"<eos>"
        return bytes([ord("a") + token_id])


@dataclass
class Rig:
    """An engine, what it runs on, and everything it put out."""

    executor: FakeExecutor
    engine: Engine
    deltas: dict[str, list[StepOutput]] = field(default_factory=dict)
    done: dict[str, CompletionOutput] = field(default_factory=dict)

    def step(self) -> list[StepOutput]:
        """One step, with the integrity check behind it."""
        outputs = self.engine.step()
        self.engine.check_integrity()
        for output in outputs:
            self.deltas.setdefault(output.request_id, []).append(output)
            if output.completion is not None:
                self.done[output.request_id] = output.completion
        return outputs

    def finish(self) -> dict[str, CompletionOutput]:
        """Run all requests to the end; nothing may be left in the cache."""
        while self.engine.has_unfinished:
            self.step()
        assert self.engine.num_free_blocks == self.executor.num_blocks
        return self.done


def make_rig(
    drafters: Mapping[str, Drafter] | None = None,
    *,
    executor: FakeExecutor | None = None,
    spec: SpecConfig | None = None,
    max_model_len: int = 64,
    max_batch_tokens: int = 64,
    max_num_requests: int = 8,
    max_draft_rows: int = 16,
    enable_prefix_caching: bool = True,
    max_queue: int | None = None,
    prompt_stretch: float = math.inf,
    draft_timeout: float | None = None,
    record_decisions: bool = False,
    chance: Callable[[int], Chance] = SeededChance,
) -> Rig:
    """Return a rig whose engine knows ``drafters`` by name, and ``none``. The default drafter is ``none``."""
    executor = executor or FakeExecutor()
    known: dict[str, Drafter] = {"none": NoneDrafter(), **(drafters or {})}
    config = EngineConfig(
        max_model_len,
        max_batch_tokens,
        max_num_requests,
        True,
        max_draft_rows,
        enable_prefix_caching,
        max_queue,
        prompt_stretch,
        draft_timeout=draft_timeout,
        record_decisions=record_decisions,
    )
    engine = Engine(
        executor, LetterDecoder(), {EOS}, known.__getitem__, spec or SpecConfig("none"), config, chance
    )
    return Rig(executor, engine)


def run_alone(prompt: Sequence[int], params: SamplingParams, **rig: object) -> CompletionOutput:
    """Return what plain decoding makes of one request on an engine of its own."""
    alone = make_rig(**rig)  # type: ignore[arg-type]
    alone.engine.add_request("alone", prompt, params)
    return alone.finish()["alone"]


def random_script(seed: int, right: float, branching: float, executor: FakeExecutor) -> Script:
    """Return a script of random trees: each node is the target's own choice with probability ``right``.

    A function of ``seed`` and the committed tokens alone. ``branching``: how likely a node starts a new
    branch.
    """

    def script(known: tuple[int, ...], budget: int, sampler: TokenSampler) -> Draft:
        rng = random.Random(hash((seed, known)))
        tokens: list[int] = []
        parents: list[int] = []
        paths: dict[int, tuple[int, ...]] = {ROOT: ()}
        for _ in range(rng.randint(0, budget)):
            last = len(tokens) - 1
            parent = rng.randint(ROOT, last) if rng.random() < branching else last
            path = paths[parent]
            token = rng.randrange(executor.vocab_size)
            if rng.random() < right:
                logits = path_logits((*known, *path), executor.vocab_size, executor.spread)
                token, _ = sampler.draw(logits, path)
            if (parent, token) in zip(parents, tokens, strict=True):
                continue
            paths[len(tokens)] = (*path, token)
            tokens.append(token)
            parents.append(parent)
        return Draft(TokenTree(tuple(tokens), tuple(parents)))

    return script


def oracle_script(executor: FakeExecutor) -> Script:
    """Return a script that always drafts a full chain of what the target will choose."""

    def script(known: tuple[int, ...], budget: int, sampler: TokenSampler) -> Draft:
        tokens: tuple[int, ...] = ()
        for _ in range(budget):
            logits = path_logits((*known, *tokens), executor.vocab_size, executor.spread)
            tokens = (*tokens, sampler.draw(logits, tokens)[0])
        return Draft.chain(tokens)

    return script


def chain_script(tokens: Sequence[int]) -> Script:
    """Return a script that always drafts the same chain."""
    return lambda _known, budget, _sampler: Draft.chain(tuple(tokens)[:budget])


def follow_script(text: Sequence[int]) -> Script:
    """Return a script that drafts the rest of ``text``, which begins with the prompt."""

    def script(known: tuple[int, ...], budget: int, _sampler: TokenSampler) -> Draft:
        if tuple(text[: len(known)]) != known:
            return EMPTY_DRAFT
        return Draft.chain(tuple(text[len(known) : len(known) + budget]))

    return script


def scripted(script: Script) -> dict[str, Drafter]:
    """Return the drafters of a rig with ``script`` under the name ``scripted``."""
    return {"scripted": ScriptedDrafter(script)}
