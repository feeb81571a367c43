"""The whole check on a fake model, and what it must notice: cache mistakes and wrong acceptance rules.

A check that cannot fail proves nothing, so most of this file breaks the engine on purpose. Laws are tested at
a false-alarm probability of 1e-6 per run, with fixed seeds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paceline.check.cache import check_cache
from paceline.check.law import check_law
from paceline.check.local import CheckResult, CheckSettings, run_check
from paceline.check.progress import silent
from paceline.check.replies import CheckPrompt, check_greedy, check_seeded
from paceline.check.report import as_json, difference_lines, local_lines
from paceline.check.subject import Subject
from paceline.drafters.base import DrafterCapabilities, TokenSampler
from paceline.drafters.ngram import NgramDrafter
from paceline.drafters.scripted import ScriptedDrafter
from paceline.engine import accept as accepting
from paceline.engine.accept import Acceptance, accept
from paceline.errors import ConfigError
from paceline.executors.base import ForwardBatch
from paceline.records import Draft, FloatArray, IntArray, TokenLaw
from paceline.sampling.params import SamplingParams
from paceline.sampling.sampler import RequestSampler
from paceline.tree import TokenTree
from support.engines import EOS, LetterDecoder, random_script
from support.fake_executor import FakeExecutor, path_logits

PROMPTS = tuple(CheckPrompt(f"p{i}", (1 + i, 2, 3, 1 + i)) for i in range(4))
SETTINGS = CheckSettings(max_tokens=12, num_draws=2000, cache_rounds=4)


def subject(executor: FakeExecutor | None = None, **changes: Any) -> Subject:
    executor = executor or FakeExecutor(vocab_size=12, spread=1.2)
    trees = ScriptedDrafter(random_script(3, 0.6, 0.4, executor))
    drafters = {"ngram": NgramDrafter(), "trees": trees}
    return replace(Subject(executor, LetterDecoder(), frozenset({EOS}), 64, 7, drafters), **changes)


@pytest.fixture(scope="module")
def sound() -> CheckResult:
    return run_check(subject(), PROMPTS, SETTINGS)


def test_a_right_engine_passes(sound: CheckResult) -> None:
    assert sound.passed, "\n".join(local_lines(sound))
    assert sound.greedy.num_replies == len(PROMPTS) * 2
    assert sound.greedy.noise == 0.0
    assert sound.cache.num_refused > 20
    assert sound.cache.num_aborted > 0


def test_every_rule_and_filter_is_tested_and_every_wrong_rule_caught(sound: CheckResult) -> None:
    names = {(test.name, test.filters) for test in sound.law.tests}
    filters = ("top_k", "top_p", "min_p", "penalties", "temperature 0.3", "temperature 1.5")
    assert {(rule, f) for rule in ("rejection", "block", "coupled", "certain tree") for f in filters} <= names
    assert {"ngram", "trees"} <= {test.name for test in sound.law.tests}
    controls = [test for test in sound.law.tests if test.is_control]
    assert len(controls) == 4
    assert all(test.passed for test in controls)


def test_the_report_says_all(sound: CheckResult) -> None:
    data = json.loads(json.dumps(as_json(sound, {"model": "fake"}), allow_nan=False))
    assert data["passed"] is True
    assert (data["kind"], data["form"], data["model"]) == ("check", "local", "fake")
    assert data["law"]["false_alarm"] == 1e-6
    assert 0.0 < data["law"]["detectable"] < 0.5
    assert all(part["passed"] for part in (data["greedy"], data["seeded"], data["cache"], data["law"]))
    text = "\n".join(local_lines(sound))
    assert text.count("ok  ") == 4
    assert "once in 1,000,000 runs" in text


def test_what_was_drafted_is_counted_and_silence_is_no_proof(sound: CheckResult) -> None:
    """Seeded replies ran in one full batch, in which ``auto`` asks nobody: equal, and shown was nothing."""
    assert set(sound.greedy.drafted) == set(sound.seeded.drafted) == {"ngram", "trees"}
    assert min(sound.greedy.drafted["trees"], sound.seeded.drafted["trees"]) > 20
    quiet = subject(drafters={"quiet": ScriptedDrafter(lambda known, budget, sampler: Draft())})
    executor = quiet.executor
    assert isinstance(executor, FakeExecutor)
    seeded = check_seeded(quiet, PROMPTS, 12, 0.0, silent)
    widths = [int(batch.sequences.max()) + 1 for batch in executor.batches]
    assert 1 in widths and 2 in widths, "alone, and in a batch"
    assert seeded.passed and seeded.drafted == {"quiet": 0}
    lines = local_lines(replace(sound, seeded=seeded))
    assert "    quiet: nothing was drafted here, so nothing is shown of it" in lines


def test_nothing_to_check_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no prompt"):
        run_check(subject(), (), SETTINGS)
    with pytest.raises(ConfigError, match="no drafter"):
        run_check(subject(drafters={}), PROMPTS, SETTINGS)
    with pytest.raises(ConfigError, match="num_draws=10"):
        CheckSettings(num_draws=10)


class ForgetsToCompact(FakeExecutor):
    """A cache bug: behind a tree the accepted path is not moved to where the next step reads it."""

    def move_slots(self, source: IntArray, destination: IntArray) -> None:
        """Do nothing."""


class RoundsOtherwise(FakeExecutor):
    """A kernel that depends on the batch: after 40 forwards the last of many rows is a little off."""

    def forward(self, batch: ForwardBatch) -> FloatArray:
        logits = super().forward(batch)
        if self.num_forwards > 40 and len(batch.tokens) > len(batch.block_offsets):
            logits = logits.copy()
            logits[-1] += np.float32(1e-3)
        return logits


def test_a_cache_bug_is_found_in_replies_and_in_the_cache() -> None:
    broken = subject(ForgetsToCompact(vocab_size=12, spread=1.2))
    greedy, plain = check_greedy(broken, PROMPTS, 12, silent)
    assert not greedy.passed
    assert {found.kind for found in greedy.differences} == {"bug"}
    assert {found.subject for found in greedy.differences} == {"trees"}, "chains need no compaction"
    assert not check_cache(broken, PROMPTS, plain, 4, 0, silent).passed
    assert not check_seeded(broken, PROMPTS, 12, 0.0, silent).passed


def test_bits_of_logits_are_compared_not_tokens_alone() -> None:
    """A thousandth of a logit changes no token here, but it is not the same model any more."""
    broken = subject(RoundsOtherwise(vocab_size=12, spread=1.2))
    greedy, _ = check_greedy(broken, PROMPTS, 12, silent)
    assert any(found.what == "logits" and found.kind == "bug" for found in greedy.differences)


class Noisy(FakeExecutor):
    """Kernels that depend on the batch: rows that are not alone are off by up to 0.05."""

    def forward(self, batch: ForwardBatch) -> FloatArray:
        logits = super().forward(batch)
        if len(batch.tokens) == 1:
            return logits
        off = [
            np.random.default_rng(int(abs(row[0]) * 1e6)).uniform(-0.05, 0.05, row.shape) for row in logits
        ]
        return (logits + np.array(off)).astype(np.float32)


def test_where_numbers_are_noisy_close_choices_are_ties() -> None:
    """The report has all that an argument needs: place, both tokens and texts, their gap, the noise."""
    noisy = subject(Noisy(vocab_size=12, spread=0.15))
    greedy, _ = check_greedy(noisy, PROMPTS, 24, silent)
    assert 0.01 < greedy.noise < 0.1
    ties = [found for found in greedy.differences if found.kind == "tie"]
    assert ties and greedy.passed
    for found in ties:
        assert found.subject in ("trees", "ngram")
        assert found.what == "token" and found.position >= 0
        assert found.token_ids[0] != found.token_ids[1] and all(found.texts)
        assert found.gap is not None and 0.0 <= found.gap <= 2.0 * greedy.noise
        (line,) = difference_lines([found])
        for part in ("tie within noise", str(found.position), *map(str, found.token_ids), *found.texts):
            assert part in line
        assert f"gap {found.gap:.3g}, noise {greedy.noise:.2g}" in line


def laws_of(broken: Subject) -> Sequence[str]:
    """Return the names of the tests that fail, controls left out."""
    greedy, plain = check_greedy(broken, PROMPTS, 12, silent)
    assert greedy.passed, "the mistake shows in sampled replies only"
    result = check_law(broken, PROMPTS, plain, 2000, 0, silent)
    assert not result.passed
    return [test.name for test in result.tests if not test.passed and not test.is_control]


def test_a_wrong_rejection_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeping any token that has at least half the highest probability, and nothing else."""

    def typical(tokens: Any, laws: Any, law_at: Any, chance: Any, root: int) -> Acceptance:
        for depth, token in enumerate(tokens):
            law: TokenLaw = law_at(depth)
            if law.prob(token) < 0.5 * law.probs.max():
                return Acceptance(tuple(range(depth)), chance.draw(law, root + 1 + depth), "recovered")
        return Acceptance(tuple(range(len(tokens))), chance.draw(law_at(len(tokens)), root + 9), "bonus")

    monkeypatch.setattr(accepting, "reject_chain", typical)
    assert set(laws_of(subject())) == {"rejection"}


def test_a_wrong_bonus_is_found() -> None:
    """The token behind a draft that was accepted whole, drawn one place too early.

    Drafts used to reach past the tokens that are judged, so that no bonus token was ever among these.
    """

    def early(sampler: RequestSampler, draft: Draft, rows: FloatArray) -> Acceptance:
        kept = accept(sampler, draft, rows)
        if kept.origin != "bonus" or not kept.path or sampler.rule == "greedy":
            return kept
        above = tuple(draft.tree.tokens[node] for node in kept.path[:-1])
        row = kept.path[-2] + 1 if above else 0
        return replace(kept, final=sampler.choose(rows[row], above))

    def likeliest(known: tuple[int, ...], budget: int, sampler: TokenSampler) -> Draft:
        return Draft.chain(path_logits(known, 12, 1.2).argsort()[-1:].tolist()[:budget])

    failed = laws_of(subject(accept_rule=early, drafters={"best": ScriptedDrafter(likeliest)}))
    assert {"rejection", "block", "coupled", "best"} <= set(failed)


def test_a_wrong_rule_for_trees_is_found_in_the_drafters_too() -> None:
    """Trying the likeliest child first with its own probability, and its mass not removed behind it."""

    def forgetful(sampler: RequestSampler, draft: Draft, rows: FloatArray) -> Acceptance:
        if draft.laws is not None or not len(draft) or sampler.rule in ("greedy", "coupled"):
            return accept(sampler, draft, rows)
        law = sampler.law(rows[0], ())
        for child in draft.tree.children(-1):
            if sampler.chance.accepts(law.prob(draft.tree.tokens[child]), sampler.root, child):
                path = (draft.tree.tokens[child],)
                return Acceptance((child,), sampler.choose(rows[child + 1], path), "bonus")
        return Acceptance((), sampler.choose(rows[0], ()), "recovered")

    def two_best(known: tuple[int, ...], budget: int, sampler: TokenSampler) -> Draft:
        best = np.argsort(-path_logits(known, 12, 1.2))[:2].tolist()
        return Draft(TokenTree(tuple(best), (-1, -1)).truncated(budget))

    # Random drafts would not do: averaged over them, the mistakes of this rule nearly cancel.
    failed = laws_of(subject(accept_rule=forgetful, drafters={"best": ScriptedDrafter(two_best)}))
    assert {"certain tree", "best"} <= set(failed)
    assert not {"rejection", "block", "coupled"} & set(failed)


def test_a_drafter_that_misstates_its_law_is_found() -> None:
    """The law is exact for what a draft says it was drawn from; one that lies makes replies follow it."""

    def lying(known: tuple[int, ...], budget: int, sampler: TokenSampler) -> Draft:
        logits = path_logits((9, *known[-1:]), 12, 1.2)
        token, law = sampler.draw(logits, ())
        if law is None:
            return Draft.chain([token][:budget])
        even = TokenLaw(law.ids, np.full(len(law.ids), 1.0 / len(law.ids)))
        return Draft.chain([token], [even])

    capabilities = DrafterCapabilities(gives_probabilities=True)
    failed = laws_of(subject(drafters={"liar": ScriptedDrafter(lying, capabilities)}))
    assert failed == ["liar"]


def test_prompts_that_leave_nothing_open_are_told_apart_from_proof() -> None:
    """Where the model is sure of every word all rules agree: no wrong one is caught, and it says so."""
    sure = subject(FakeExecutor(vocab_size=12, spread=60.0), drafters={"ngram": NgramDrafter()})
    _, plain = check_greedy(sure, PROMPTS[:1], 4, silent)
    result = check_law(sure, PROMPTS[:1], plain, 1000, 0, silent)
    assert not result.passed
    assert any(test.is_control and not test.passed for test in result.tests)


def test_a_seed_repeats_the_draws() -> None:
    one, two = (
        check_law(subject(drafters={"ngram": NgramDrafter()}), PROMPTS[:1], plain, 1000, 7, silent)
        for plain in [check_greedy(subject(), PROMPTS[:1], 4, silent)[1]] * 2
    )
    assert one == two


def test_parameters_of_seeded_requests_are_valid() -> None:
    from paceline.check.replies import SEEDED, seeded_params

    for index in range(len(SEEDED)):
        assert isinstance(seeded_params(index, 8, "ngram", 7), SamplingParams)
