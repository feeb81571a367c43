"""What was computed once is not computed again, and nobody can tell from the reply."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.drafters.base import DraftContext, DrafterCapabilities
from paceline.drafters.scripted import ScriptedDrafter, ScriptedSession
from paceline.engine.scheduler import MOST_READ_AGAIN, WORTH_WAITING
from paceline.engine.terms import QueueTerms
from paceline.records import BatchLoad
from paceline.sampling.params import SamplingParams
from support.engines import Rig, chain_script, make_rig, random_script, run_alone, scripted
from support.fake_executor import FakeExecutor

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
LONG = [1 + i % 9 for i in range(30)]


def rows_of(rig: Rig, since: int) -> list[int]:
    return [len(batch.tokens) for batch in rig.executor.batches[since:]]


def run(rig: Rig, name: str, prompt: Sequence[int], params: SamplingParams = GREEDY) -> list[int]:
    """Run one request to the end; return the rows of its forwards."""
    since = len(rig.executor.batches)
    rig.engine.add_request(name, prompt, params)
    rig.finish()
    return rows_of(rig, since)


def test_a_shared_beginning_is_computed_once() -> None:
    rig = make_rig()
    assert run(rig, "first", [*LONG, 5])[0] == 31
    assert run(rig, "second", [*LONG, 7, 8])[0] == 32 - 28  # seven full blocks of four
    assert rig.done["first"].metrics.num_cached_tokens == 0
    assert rig.done["second"].metrics.num_cached_tokens == 28
    alone = run_alone([*LONG, 7, 8], GREEDY)
    assert rig.done["second"].token_ids == alone.token_ids
    assert rig.done["second"].logit_hashes == alone.logit_hashes
    load = rig.engine.load
    assert (load.num_prefix_queries, load.num_prefix_hits) == (31 + 32, 28)
    assert load.num_free_blocks == load.num_blocks
    assert load.num_cached_blocks > 0


def test_the_next_turn_finds_the_reply_as_well() -> None:
    rig = make_rig()
    run(rig, "one", LONG)
    turn = [*LONG, *rig.done["one"].token_ids, 3, 4]
    assert run(rig, "two", turn)[0] == len(turn) - 32
    assert rig.done["two"].logit_hashes == run_alone(turn, GREEDY).logit_hashes


def test_a_prompt_that_is_known_whole_computes_its_last_block() -> None:
    """The logits of the last token must come from somewhere: it is never taken from the cache."""
    rig = make_rig()
    run(rig, "one", LONG[:28])
    assert run(rig, "two", LONG[:28])[0] == 4
    assert run(rig, "three", LONG[:29])[0] == 1
    assert rig.done["two"].logit_hashes == rig.done["one"].logit_hashes


def test_two_equal_prompts_at_once_are_read_once() -> None:
    rig = make_rig()
    for name in ("a", "b", "c"):
        rig.engine.add_request(name, LONG, GREEDY)
    rig.step()
    rig.step()
    assert rows_of(rig, 0) == [30, 1 + 2 + 2]
    done = rig.finish()
    assert len({reply.logit_hashes for reply in done.values()}) == 1


def test_little_in_common_is_not_worth_waiting_for() -> None:
    rig = make_rig()
    common = LONG[: 4 * (WORTH_WAITING - 1)]
    for number in range(2):
        rig.engine.add_request(str(number), [*common, 5 + number, 1, 1], GREEDY)
    rig.step()
    assert rows_of(rig, 0) == [2 * (len(common) + 3)]
    rig.finish()


def test_who_waits_for_a_prompt_goes_on_when_its_reader_is_cancelled() -> None:
    rig = make_rig(max_batch_tokens=8)
    for name in ("reader", "waits"):
        rig.engine.add_request(name, LONG, GREEDY)
    rig.step()
    rig.step()
    rig.engine.abort("reader")
    rig.engine.check_integrity()
    rig.step()
    assert rig.finish()["waits"].logit_hashes == run_alone(LONG, GREEDY).logit_hashes
    assert rig.done["waits"].metrics.num_cached_tokens == 16


def test_a_preempted_request_computes_only_what_was_evicted() -> None:
    executor = FakeExecutor(num_blocks=16, block_size=4)
    rig = make_rig(executor=executor, max_model_len=64)
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    rig.engine.add_request("old", LONG[:24], params)
    rig.engine.add_request("young", LONG[5:29], params)
    rig.finish()
    metrics = rig.done["young"].metrics
    assert metrics.num_preemptions >= 1
    assert rig.engine.load.num_prefix_hits > 0
    assert metrics.num_cached_tokens == 0  # nothing of its prompt was known when it began
    assert rig.done["young"].logit_hashes == run_alone(LONG[5:29], params).logit_hashes


def test_only_committed_tokens_enter() -> None:
    """Refused drafts fill slots of blocks that stay; a prompt made of them must not find them."""
    prompt = LONG[:6]
    reply = list(run_alone(prompt, GREEDY).token_ids)
    wrong = [1 + (token + 1) % 11 for token in reply]
    rig = make_rig(scripted(chain_script(wrong)))
    params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True, drafter="scripted")
    run(rig, "drafted", prompt, params)
    assert rig.done["drafted"].metrics.num_accepted_tokens < len(wrong)
    follow = [*prompt, *wrong[:6]]
    run(rig, "follow", follow)
    assert rig.done["follow"].metrics.num_cached_tokens == 4
    assert rig.done["follow"].logit_hashes == run_alone(follow, GREEDY).logit_hashes


def test_off_means_off_and_clear_forgets() -> None:
    off = make_rig(enable_prefix_caching=False)
    assert run(off, "1", LONG)[0] == run(off, "2", LONG)[0] == 30
    assert off.engine.load.num_cached_blocks == off.engine.load.num_prefix_queries - 60 == 0
    rig = make_rig()
    run(rig, "1", LONG)
    rig.engine.clear_prefix_cache()
    assert run(rig, "2", LONG)[0] == 30


def test_a_failed_forward_leaves_nothing_wrong_behind() -> None:
    executor = FakeExecutor(fail_at=1)
    rig = make_rig(executor=executor, max_batch_tokens=8)
    rig.engine.add_request("0", LONG, GREEDY)
    rig.step()
    with pytest.raises(RuntimeError):
        rig.step()
    rig.engine.abort("0")
    run(rig, "1", LONG)
    assert rig.done["1"].metrics.num_cached_tokens == 8
    assert rig.done["1"].logit_hashes == run_alone(LONG, GREEDY).logit_hashes


def test_states_begin_where_the_cache_ends() -> None:
    layers = (2, 5)
    capabilities = DrafterCapabilities(state_layers=layers)
    drafter = ScriptedDrafter(lambda *_: chain_script([])([], 0, None), capabilities)  # type: ignore[arg-type]
    rig = make_rig({"scripted": drafter})
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, drafter="scripted")
    run(rig, "one", LONG, params)
    run(rig, "two", LONG, params)
    starts = {name: drafter.sessions[name].steps[0].states.start for name in ("one", "two")}  # type: ignore[union-attr]
    assert starts == {"one": 0, "two": 28}
    first, second = (drafter.sessions[name].steps[0].states for name in ("one", "two"))
    assert first is not None and second is not None
    assert np.array_equal(first.rows[28:], second.rows)


class Asking(ScriptedSession):
    """Wants states from a position on."""

    wants = 0

    def states_wanted_from(self, limit: int, num_requests: int) -> int:
        return min(limit, self.wants)


class AskingDrafter(ScriptedDrafter):
    def start(self, context: DraftContext) -> ScriptedSession:
        self.sessions[context.request_id] = Asking(self.script, context)
        return self.sessions[context.request_id]


def test_a_drafter_may_ask_for_a_few_states_more() -> None:
    """Blocks are computed again for a drafter that needs their states, but never many of them."""
    drafter = AskingDrafter(chain_script([]), DrafterCapabilities(state_layers=(2,)))
    rig = make_rig({"scripted": drafter}, max_model_len=128, max_batch_tokens=128)
    params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True, drafter="scripted")
    prompt = LONG * 3
    for wants, computed in ((0, 90), (64, 26), (88 - MOST_READ_AGAIN - 4, 2), (88 - MOST_READ_AGAIN, 34)):
        Asking.wants = wants
        assert run(rig, str(wants), prompt, params)[0] == computed
        states = drafter.sessions[str(wants)].steps[0].states
        assert states is not None and states.start == 90 - computed


def test_states_that_a_session_does_not_want_from_the_start_are_not_computed() -> None:
    class Declining(Asking):
        wants_states = False
        rest, spent, decision = 0, 0.0, None

        def meet(self, load: BatchLoad) -> None:
            """Drafts are scripted."""

    class DecliningDrafter(ScriptedDrafter):
        def start(self, context: DraftContext) -> ScriptedSession:
            self.sessions[context.request_id] = Declining(self.script, context)
            return self.sessions[context.request_id]

    drafter = DecliningDrafter(chain_script([]), DrafterCapabilities(state_layers=(2,), is_adaptive=True))
    rig = make_rig({"scripted": drafter})
    params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True, drafter="scripted")
    run(rig, "before", LONG, params)
    assert run(rig, "after", LONG, params)[0] == len(LONG) - 28, "as much as there is comes from the cache"
    assert all(step.states is None for step in drafter.sessions["after"].steps)


STEMS = st.lists(st.lists(st.integers(1, 4), min_size=6, max_size=14), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(stems=STEMS, seed=st.integers(0, 10**6), block_size=st.sampled_from([2, 4]), spare=st.integers(0, 14))
def test_no_reply_depends_on_the_cache(
    stems: list[list[int]], seed: int, block_size: int, spare: int
) -> None:
    """Random arrivals and cancels, priorities, preemption, chunks, trees; a tiny cache of few texts."""
    rng = random.Random(seed)
    executor = FakeExecutor(block_size=block_size, num_blocks=-(-34 // block_size) + spare)
    script = random_script(seed, rng.choice([0.0, 0.6, 1.0]), 0.4, executor)
    rig = make_rig(
        scripted(script),
        executor=executor,
        max_num_requests=rng.randint(1, 4),
        max_batch_tokens=rng.choice([4, 7, 64]),
        prompt_stretch=rng.choice([1.5, math.inf]),
    )
    wanted = {}
    for number in range(12):
        prompt = rng.choice(stems)[: rng.randint(1, 14)] + [rng.randint(1, 4)] * rng.randint(0, 3)
        chosen = {"max_tokens": rng.randint(1, 14), "temperature": 0.0}
        if rng.random() < 0.5:
            chosen |= {"temperature": 1.0, "seed": rng.randint(0, 9)}
        drafted = SamplingParams(**chosen, drafter="scripted", num_draft_tokens=rng.randint(1, 6))  # type: ignore[arg-type]
        rig.engine.add_request(str(number), prompt, drafted, QueueTerms(priority=rng.randint(0, 2)))
        wanted[str(number)] = (prompt, SamplingParams(**chosen))  # type: ignore[arg-type]
        for _ in range(rng.randint(0, 4)):
            rig.step()
        if rng.random() < 0.2 and rig.engine.abort(name := str(rng.randint(0, number))) is not None:
            del wanted[name]
            rig.engine.check_integrity()
    done = rig.finish()
    for name, (prompt, params) in wanted.items():
        alone = run_alone(prompt, params)
        assert done[name].token_ids == alone.token_ids
        assert done[name].logit_hashes == alone.logit_hashes
