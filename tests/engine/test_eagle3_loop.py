"""A draft head in the loop: greedy and seeded replies are bit-identical, unseeded ones keep their law.

Head and target are the fakes of ``support``: the head is right about two times in three, and every pair in
its cache leaves a trace in what it drafts.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.config import SpecConfig
from paceline.drafters.auto import AutoDrafter, AutoOptions
from paceline.drafters.base import DraftContext, Drafter, DrafterCapabilities, DraftSession
from paceline.drafters.eagle3 import Eagle3Drafter, Eagle3Options, Eagle3Session
from paceline.drafters.verify_cost import VerifyCost
from paceline.sampling.params import SamplingParams
from support.engines import Rig, make_rig, run_alone
from support.enumerated import engine_law, naive_process, target_law, total_variation
from support.fake_executor import FakeExecutor
from support.fake_head import FakeHead, all_ids, head_drafter, true_states

EXACT = 1e-12
CHEAP = VerifyCost((1.0, 1.01, 1.02, 1.03))  # so that drafting always pays
TREE = Eagle3Options(verify_cost=CHEAP, step_cost=0.01)
CHAIN = Eagle3Options(verify_cost=CHEAP, step_cost=0.01, width=1)
DRAWN = Eagle3Options(verify_cost=CHEAP, step_cost=0.01, sampling="chain")
KINDS = {"tree": TREE, "chain": CHAIN, "drawn": DRAWN}
SOME_IDS = np.array([0, 1, 2, 4, 5, 7, 8, 10], np.int32)


class CheckedSession:
    """A session whose head's cache is compared with the truth after each step.

    ``failures``: what raised, because the engine takes anything a drafter raises for the drafter's fault.
    """

    def __init__(
        self, inner: Any, eagle: Eagle3Session, head: FakeHead, prompt: tuple[int, ...], failures: list[str]
    ) -> None:
        self._inner, self._eagle, self._head, self._known = inner, eagle, head, prompt
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def propose(self, budget: int) -> Any:
        return self._watched(lambda: self._inner.propose(budget))

    def observe(self, step: Any) -> None:
        self._known = (*self._known, *step.committed)
        self._watched(lambda: self._inner.observe(step))
        self._watched(self._compare)

    def _watched(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:
            self._failures.append(repr(error))
            raise

    def _compare(self) -> None:
        sequence, cached = self._eagle._sequence, self._eagle.num_cached
        assert len(sequence.table.blocks) == -(-cached // self._head.block_size)
        if not cached:
            return
        first = sequence.first  # not 0 where the target's prefix cache had the beginning of the prompt
        truth = true_states(self._known, first, first + cached)
        pairs = [(row.tobytes(), token) for row, token in zip(truth, self._known[first + 1 :], strict=False)]
        assert self._head.seen(np.array(sequence.table.blocks), cached) == pairs


class CheckedDrafter:
    """Wraps a head drafter, or an ``auto`` with a head."""

    def __init__(self, inner: Eagle3Drafter | AutoDrafter, head: FakeHead) -> None:
        self._inner, self._head = inner, head
        self.name = inner.name
        self.failures: list[str] = []

    @property
    def capabilities(self) -> DrafterCapabilities:
        return self._inner.capabilities

    def start(self, context: DraftContext) -> DraftSession:
        session = self._inner.start(context)
        eagle = session if isinstance(session, Eagle3Session) else session._head.session
        if eagle is None:
            return session
        checked: DraftSession = CheckedSession(
            session, eagle, self._head, context.prompt_token_ids, self.failures
        )
        return checked


def drafters_on(
    executor: FakeExecutor, head: FakeHead
) -> tuple[dict[str, CheckedDrafter], list[Eagle3Drafter]]:
    """Every way to draft with a head, each with its own cache, checked at each step."""
    plain = {name: head_drafter(head_like(head), options) for name, options in KINDS.items()}
    inner = head_drafter(head_like(head), TREE)
    auto = AutoDrafter(AutoOptions(verify_cost=CHEAP), inner)
    named = {name: CheckedDrafter(drafter, drafter.head.executor) for name, drafter in plain.items()}
    named["auto"] = CheckedDrafter(auto, inner.head.executor)
    return named, [*plain.values(), inner]


def head_like(head: FakeHead) -> FakeHead:
    return FakeHead(
        head.target, head.draft_to_target, head.num_blocks, head.block_size, head.max_context, head.fail_at
    )


@st.composite
def reproducible_params(draw: st.DrawFn) -> dict[str, Any]:
    chosen: dict[str, Any] = {"max_tokens": draw(st.integers(1, 24))}
    if draw(st.booleans()):
        chosen |= {"temperature": draw(st.sampled_from([0.4, 1.0])), "seed": draw(st.integers(0, 2**64 - 1))}
        chosen |= draw(st.sampled_from([{}, {"top_p": 0.8}, {"top_k": 3}]))
    else:
        chosen["temperature"] = 0.0
    extras = [{"repetition_penalty": 1.3}, {"stop": ["bc", "ka"]}, {"ignore_eos": True}]
    for extra in draw(st.lists(st.sampled_from(extras), max_size=2)):
        chosen |= extra
    return chosen


@settings(max_examples=120, deadline=None)
@given(
    requests=st.lists(
        st.tuples(
            st.lists(st.integers(1, 11), min_size=1, max_size=14),
            reproducible_params(),
            st.integers(1, 8),
            st.sampled_from([*KINDS, "auto", "none"]),
        ),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(0, 10**6),
    batch=st.tuples(st.integers(1, 4), st.sampled_from([4, 7, 64]), st.sampled_from([2, 4, 16])),
    spare_blocks=st.integers(0, 30),
    head_blocks=st.sampled_from([3, 12, 64]),
    ids=st.sampled_from([SOME_IDS, np.arange(12, dtype=np.int32)]),
)
def test_replies_do_not_depend_on_the_head(
    requests: list[tuple[list[int], dict[str, Any], int, str]],
    seed: int,
    batch: tuple[int, int, int],
    spare_blocks: int,
    head_blocks: int,
    ids: Any,
) -> None:
    max_num_requests, max_batch_tokens, block_size = batch
    executor = FakeExecutor(block_size=block_size, num_blocks=-(-40 // block_size) + spare_blocks)
    head = FakeHead(executor, ids, num_blocks=head_blocks, max_context=24 if seed % 2 else 4096)
    named, owners = drafters_on(executor, head)
    rig = make_rig(
        named, executor=executor, max_num_requests=max_num_requests, max_batch_tokens=max_batch_tokens
    )
    rng = random.Random(seed)
    for number, (prompt, chosen, k, drafter) in enumerate(requests):
        extra = {} if drafter == "none" else {"num_draft_tokens": k}
        rig.engine.add_request(str(number), prompt, SamplingParams(**chosen, drafter=drafter, **extra))
        for _ in range(rng.randint(0, 3)):
            rig.step()
        if rng.random() < 0.2:  # somebody hangs up
            rig.engine.add_request("gone", prompt, SamplingParams(drafter=rng.choice([*named])))
            for _ in range(rng.randint(0, 3)):
                rig.step()
            rig.engine.abort("gone")
            rig.engine.check_integrity()
    done = rig.finish()
    for number, (prompt, chosen, _, _) in enumerate(requests):
        plain = run_alone(prompt, SamplingParams(**chosen))
        for name in ("token_ids", "text", "finish_reason", "stop_reason", "logit_hashes"):
            assert getattr(plain, name) == getattr(done[str(number)], name), name
    for owner in owners:
        assert owner.num_free_blocks == head_blocks
    assert [named[kind].failures for kind in (*KINDS, "auto")] == [[]] * 4


@pytest.mark.parametrize("kind", [*KINDS, "auto"])
def test_the_head_saves_forwards(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The property above is not empty: drafts are made and accepted, in every mode, and nothing failed."""
    executor = FakeExecutor()
    named, _ = drafters_on(executor, FakeHead(executor, all_ids(executor)))
    rig = make_rig(named, executor=executor)
    params = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True, drafter=kind, num_draft_tokens=6)
    rig.engine.add_request("0", [1, 2, 3], params)
    reply = rig.finish()["0"]
    assert reply.metrics.tokens_per_step > 2.0
    assert not caplog.records


def test_drafts_do_not_depend_on_chunks_or_preemption() -> None:
    """What the head drafts is a function of the committed tokens: its cache is that of a quiet run."""

    def drafted(num_blocks: int, max_batch_tokens: int) -> tuple[int, int, int]:
        executor = FakeExecutor(num_blocks=num_blocks)
        named, _ = drafters_on(executor, FakeHead(executor, all_ids(executor)))
        rig = make_rig(named, executor=executor, max_batch_tokens=max_batch_tokens)
        params = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True, drafter="tree")
        rig.engine.add_request(
            "first", [9] * 10, SamplingParams(temperature=0, max_tokens=30, drafter="none")
        )
        rig.engine.add_request("0", [1, 2, 3] * 6, params)
        metrics = rig.finish()["0"].metrics
        return metrics.num_draft_tokens, metrics.num_accepted_tokens, metrics.num_preemptions

    quiet, pressed = drafted(64, 64), drafted(14, 8)
    assert pressed[2] > 0 == quiet[2]
    assert pressed[1] > 0


class Fresh:
    """Starts each session on a drafter of its own, so that one run of the enumeration teaches no other."""

    def __init__(self, make: Callable[[], Drafter]) -> None:
        self._make = make
        first = make()
        self.name, self.capabilities = "head", first.capabilities

    def start(self, context: DraftContext) -> DraftSession:
        return self._make().start(context)


def distance(options: Eagle3Options, acceptance: Any, chosen: dict[str, Any], ids: list[int]) -> float:
    """Return the total variation between the engine's law of a reply and the target's; see test_laws."""
    executor = FakeExecutor(vocab_size=3, spread=1.0)
    params = SamplingParams(max_tokens=4, ignore_eos=True, drafter="head", acceptance=acceptance, **chosen)

    def make() -> Drafter:
        return head_drafter(FakeHead(executor, np.array(ids, np.int32)), options)

    got = engine_law(executor, Fresh(make), SpecConfig("head", 3), params, (1, 2))
    assert sum(got.values()) == pytest.approx(1.0, abs=EXACT)
    return total_variation(got, target_law(executor, params, (1, 2), naive_process(params)))


@pytest.mark.parametrize("acceptance", ["rejection", "block"])
@pytest.mark.parametrize("filters", [{}, {"top_k": 2}, {"temperature": 0.5, "top_p": 0.9}], ids=str)
@pytest.mark.parametrize("ids", [[0, 1, 2], [0, 2]], ids=["all ids", "two ids"])
def test_drawn_chains_are_exact(acceptance: str, filters: dict[str, Any], ids: list[int]) -> None:
    assert distance(DRAWN, acceptance, filters, ids) < EXACT


@pytest.mark.parametrize("options", [TREE, CHAIN], ids=["tree", "chain"])
@pytest.mark.parametrize("filters", [{}, {"top_k": 2}, {"temperature": 0.5, "top_p": 0.9}], ids=str)
def test_certain_trees_are_exact(options: Eagle3Options, filters: dict[str, Any]) -> None:
    assert distance(options, None, filters, [0, 1, 2]) < EXACT


@pytest.mark.parametrize("kind", [*KINDS, "auto"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_head_that_raises_costs_the_drafts_and_warns_once(
    kind: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    executor = FakeExecutor()
    named, owners = drafters_on(executor, FakeHead(executor, all_ids(executor), fail_at=number))
    rig = make_rig(named, executor=executor)
    params = {"temperature": 0.0, "max_tokens": 30, "ignore_eos": True}
    plain = run_alone([1, 2, 3], SamplingParams(**params))
    with caplog.at_level(logging.WARNING):
        rig.engine.add_request("0", [1, 2, 3], SamplingParams(**params, drafter=kind))
        assert rig.finish()["0"].logit_hashes == plain.logit_hashes
    assert len(caplog.records) == 1
    assert all(owner.num_free_blocks == owner.head.executor.num_blocks for owner in owners)
    if kind == "auto":  # the others go on; no later request asks for states
        rig.engine.add_request("1", [1, 2, 3], SamplingParams(**params, drafter=kind))
        reply = rig.finish()["1"]
        assert reply.logit_hashes == plain.logit_hashes
        assert len(caplog.records) == 1
        assert named["auto"].capabilities.state_layers == ()


def test_a_full_head_cache_silences_until_another_request_ends() -> None:
    executor = FakeExecutor()
    head = FakeHead(executor, all_ids(executor), num_blocks=7)
    drafter = head_drafter(head, TREE)
    rig: Rig = make_rig({"head": drafter}, executor=executor)
    shape = {"temperature": 0.0, "ignore_eos": True, "drafter": "head", "num_draft_tokens": 2}
    rig.engine.add_request("long", [1, 2, 3, 4] * 5, SamplingParams(**shape, max_tokens=8))
    rig.engine.add_request("late", [4, 3, 2] * 3, SamplingParams(**shape, max_tokens=40))
    while "long" not in rig.done:
        rig.step()
    early = len(rig.deltas["late"])
    assert rig.finish()["late"].metrics.num_draft_tokens > 0
    assert all(len(step.token_ids) == 1 for step in rig.deltas["late"][:early])
    assert drafter.num_free_blocks == 7
