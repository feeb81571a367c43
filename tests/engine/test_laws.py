"""Without a seed the law of the reply is the target's, exactly: the engine is run down every branch.

Vocabulary 3, replies of 3 tokens, so a first step drafts two tokens. Total variation below 1e-12 is exact;
the wrong rules at the end must be far above it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.config import SpecConfig
from paceline.drafters.base import DrafterCapabilities, TokenSampler
from paceline.drafters.scripted import ScriptedDrafter
from paceline.engine import accept as accepting
from paceline.records import Draft, TokenLaw
from paceline.sampling.params import SamplingParams
from paceline.sampling.sampler import RequestSampler
from paceline.tree import TokenTree
from support.engines import make_rig
from support.enumerated import engine_law, naive_process, target_law, total_variation
from support.fake_executor import FakeExecutor, path_logits

VOCAB = 3
PROMPT = (1, 2)
EXACT = 1e-12
FILTERS: list[dict[str, Any]] = [
    {},
    {"top_k": 2},
    {"top_p": 0.7},
    {"min_p": 0.4},
    {"temperature": 0.5, "top_p": 0.9},
]
PROCESSORS: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.5, "frequency_penalty": 0.5, "presence_penalty": 0.25},
    {"logit_bias": {0: 1.5}, "min_tokens": 2, "stop_token_ids": [2]},
]


def executor() -> FakeExecutor:
    return FakeExecutor(vocab_size=VOCAB, spread=1.0)


def draft_logits(known: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A draft model that knows the target somewhat."""
    return 0.5 * path_logits(known, VOCAB, 1.0) + 0.5 * path_logits((9, *known[-1:]), VOCAB, 1.0)


def sampled_chain(known: tuple[int, ...], budget: int, sampler: TokenSampler) -> Draft:
    """Draw a chain from the draft model through the request's own filters."""
    tokens: list[int] = []
    laws: list[TokenLaw] = []
    for _ in range(budget):
        token, law = sampler.draw(draft_logits((*known, *tokens)), tuple(tokens))
        assert law is not None
        tokens.append(token)
        laws.append(law)
    return Draft.chain(tokens, laws)


def certain_tree(known: tuple[int, ...], budget: int, sampler: TokenSampler) -> Draft:
    """Two children of the root, two of the first of them, as far as the budget goes."""
    first = (known[-1] + 1) % VOCAB
    tree = TokenTree((first, (first + 1) % VOCAB, 0, 2), (-1, -1, 0, 0))
    return Draft(tree.truncated(budget))


def drafter(script: Any) -> ScriptedDrafter:
    return ScriptedDrafter(script, DrafterCapabilities(can_branch=True, gives_probabilities=True))


def distance(script: Any, acceptance: Any, chosen: dict[str, Any], max_tokens: int = 3) -> float:
    """Return the total variation between the engine's law of the reply and the target's.

    Stop ids end replies early in the engine, so both laws are compared after cutting there.
    """
    params = SamplingParams(
        max_tokens=max_tokens, ignore_eos=True, drafter="scripted", acceptance=acceptance, **chosen
    )
    spec = SpecConfig("scripted", 4)
    got = engine_law(executor(), drafter(script), spec, params, PROMPT)
    want: dict[tuple[int, ...], float] = {}
    for reply, weight in target_law(executor(), params, PROMPT, naive_process(params)).items():
        ends = [i for i, token in enumerate(reply) if token in params.stop_ids and i + 1 > params.min_tokens]
        cut = reply[: ends[0] + 1] if ends else reply
        want[cut] = want.get(cut, 0.0) + weight
    assert sum(got.values()) == pytest.approx(1.0, abs=EXACT)
    return total_variation(got, want)


@pytest.mark.parametrize("acceptance", ["rejection", "block"])
@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("processors", PROCESSORS, ids=["plain", "penalties", "bias"])
def test_sampled_chains_are_exact(
    acceptance: str, filters: dict[str, Any], processors: dict[str, Any]
) -> None:
    assert distance(sampled_chain, acceptance, filters | processors) < EXACT


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("processors", PROCESSORS, ids=["plain", "penalties", "bias"])
def test_certain_trees_are_exact(filters: dict[str, Any], processors: dict[str, Any]) -> None:
    assert distance(certain_tree, None, filters | processors, max_tokens=4) < EXACT


def test_block_keeps_at_least_as_many_tokens() -> None:
    """Sun et al. 2024, theorem 2: no fewer accepted tokens than rejection, and here strictly more."""
    kept = {rule: _mean_accepted(rule) for rule in ("rejection", "block")}
    assert kept["block"] > kept["rejection"] + 1e-4


def _mean_accepted(rule: Any) -> float:
    """Return the exact expected number of accepted tokens of the first step."""
    from paceline.theory.enumeration import outcomes
    from support.enumerated import EnumeratedChance

    params = SamplingParams(max_tokens=4, ignore_eos=True, drafter="scripted", acceptance=rule)
    total = 0.0

    def run(chance: Any) -> int:
        rig = make_rig(
            {"scripted": drafter(sampled_chain)},
            executor=executor(),
            spec=SpecConfig("scripted", 3),
            chance=lambda _: EnumeratedChance(chance),
        )
        rig.engine.add_request("0", PROMPT, params)
        (output,) = rig.step()
        return len(output.token_ids) - 1

    for accepted, weight in outcomes(run):
        total += accepted * weight
    return total


# Negative controls: rules found in the wild that are wrong. Each must be visible in the law.
VISIBLE = 0.01


def test_control_argmax_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeping a draft because it is the target's argmax, while the request samples."""

    def argmax_match(tree: TokenTree, choose: Any) -> accepting.Acceptance:
        if len(tree) and tree.tokens[0] == int(path_logits(PROMPT, VOCAB, 1.0).argmax()):
            return accepting.Acceptance((0,), choose(0, (tree.tokens[0],)), "bonus")
        return accepting.Acceptance((), choose(-1, ()), "recovered")

    best = int(path_logits(PROMPT, VOCAB, 1.0).argmax())
    monkeypatch.setattr(accepting, "match", argmax_match)
    assert distance(lambda known, budget, _: Draft.chain([best][:budget]), None, {}, max_tokens=2) > VISIBLE


def test_control_q_before_filters() -> None:
    """Judging a token by the draft's law before the filters it was drawn through."""

    def unfiltered(known: tuple[int, ...], budget: int, sampler: TokenSampler) -> Draft:
        honest = sampled_chain(known, budget, sampler)
        chance = sampler.chance  # type: ignore[attr-defined]
        plain = RequestSampler(SamplingParams(temperature=1.0), PROMPT, (), "rejection", chance, VOCAB)
        laws = [plain.law(draft_logits((*known, *honest.tree.tokens[:i])), ()) for i in range(len(honest))]
        return Draft.chain(honest.tree.tokens, laws)

    for rule in ("rejection", "block"):
        assert distance(unfiltered, rule, {"top_k": 2}) > VISIBLE


def test_control_verifying_at_temperature_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judging by the target's law at temperature 1 whatever the request asked for."""
    honest = accepting.reject_chain

    def at_one(tokens: Any, laws: Any, law_at: Any, chance: Any, root: int) -> accepting.Acceptance:
        def warm(depth: int) -> TokenLaw:
            law = law_at(depth)
            probs = law.probs**0.5  # temperature 0.5 back to 1
            return TokenLaw(law.ids, probs / probs.sum())

        return honest(tokens, laws, warm, chance, root)

    monkeypatch.setattr(accepting, "reject_chain", at_one)
    assert distance(sampled_chain, "rejection", {"temperature": 0.5}) > VISIBLE


def test_control_typical_acceptance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeping every token with at least half the probability of the most likely one."""

    def typical(tokens: Any, laws: Any, law_at: Any, chance: Any, root: int) -> accepting.Acceptance:
        for depth, token in enumerate(tokens):
            law = law_at(depth)
            if law.prob(token) < 0.5 * law.probs.max():
                return accepting.Acceptance(tuple(range(depth)), chance.draw(law, 0), "recovered")
        return accepting.Acceptance(tuple(range(len(tokens))), chance.draw(law_at(len(tokens)), 0), "bonus")

    monkeypatch.setattr(accepting, "reject_chain", typical)
    assert distance(sampled_chain, "rejection", {}) > VISIBLE
