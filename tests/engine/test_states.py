"""Hidden states reach the drafter that asked for them: of committed tokens, gapless, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.drafters.base import DrafterCapabilities
from paceline.drafters.scripted import ScriptedDrafter, ScriptedSession
from paceline.executors.base import ForwardBatch
from paceline.records import FloatArray
from paceline.sampling.params import SamplingParams
from support.engines import chain_script, make_rig, oracle_script, random_script
from support.fake_executor import FakeExecutor, path_state

LOW, HIGH = (2, 5), (7, 2, 9)
PROMPT = st.lists(st.integers(1, 11), min_size=1, max_size=14)


@dataclass
class WatchedExecutor(FakeExecutor):
    """Remembers which layers each forward was asked for; ``()`` for a plain one."""

    asked: list[tuple[int, ...]] = field(default_factory=list)

    def forward(self, batch: ForwardBatch) -> FloatArray:
        self.asked.append(())
        return super().forward(batch)

    def forward_with_states(
        self, batch: ForwardBatch, layers: Sequence[int]
    ) -> tuple[FloatArray, FloatArray]:
        answer = super().forward_with_states(batch, layers)
        self.asked[-1] = tuple(layers)
        return answer


def drafters(executor: FakeExecutor, seed: int = 1, right: float = 0.7) -> dict[str, ScriptedDrafter]:
    """Drafters of random trees: one that wants no states, two that want different ones."""
    script = random_script(seed, right, 0.4, executor)
    return {
        name: ScriptedDrafter(script, DrafterCapabilities(can_branch=True, state_layers=layers), name)
        for name, layers in {"blind": (), "low": LOW, "high": HIGH}.items()
    }


def wanted(known: Sequence[int], position: int, layers: tuple[int, ...], size: int) -> FloatArray:
    path = tuple(known[: position + 1])
    return np.concatenate([path_state(path, layer, size) for layer in layers])


def check_session(session: ScriptedSession, layers: tuple[int, ...], size: int, block_size: int = 4) -> int:
    """Assert what the session was told; return how often the states went back.

    They jump forward over whole blocks that the prefix cache had.
    """
    restarts, end = 0, 0
    for step in session.steps:
        assert (step.states is not None) == bool(layers)
        if step.states is None:
            continue
        if step.states.start != end:
            assert step.states.start % block_size == 0
            restarts += step.states.start < end
        end = step.states.start + len(step.states)
        for row, position in enumerate(range(step.states.start, end)):
            assert np.array_equal(step.states.rows[row], wanted(session.known, position, layers, size))
    if layers:
        assert len(session.known) - 1 <= end <= len(session.known)
    return restarts


@settings(max_examples=80, deadline=None)
@given(
    requests=st.lists(
        st.tuples(PROMPT, st.integers(1, 16), st.integers(0, 6), st.sampled_from(["blind", "low", "high"])),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(0, 10**6),
    right=st.sampled_from([0.0, 0.6, 1.0]),
    batch=st.tuples(st.integers(1, 4), st.sampled_from([4, 7, 64]), st.sampled_from([2, 4])),
    spare_blocks=st.integers(0, 20),
    temperature=st.sampled_from([0.0, 1.0]),
)
def test_states_are_those_of_the_committed_tokens(
    requests: list[tuple[list[int], int, int, str]],
    seed: int,
    right: float,
    batch: tuple[int, int, int],
    spare_blocks: int,
    temperature: float,
) -> None:
    max_num_requests, max_batch_tokens, block_size = batch
    executor = WatchedExecutor(block_size=block_size, num_blocks=-(-32 // block_size) + spare_blocks)
    known = drafters(executor, seed, right)
    rig = make_rig(
        dict(known), executor=executor, max_num_requests=max_num_requests, max_batch_tokens=max_batch_tokens
    )
    rng = random.Random(seed)
    for number, (prompt, max_tokens, k, name) in enumerate(requests):
        params = SamplingParams(
            temperature=temperature,
            max_tokens=max_tokens,
            drafter=name,
            num_draft_tokens=max(1, k),
            stop_token_ids=[4],
        )
        rig.engine.add_request(str(number), prompt, params)
        for _ in range(rng.randint(0, 3)):
            rig.step()
    done = rig.finish()
    for number, (prompt, _, _, name) in enumerate(requests):
        session = known[name].sessions[str(number)]
        assert tuple(session.known[len(prompt) :]) == done[str(number)].token_ids
        layers = known[name].capabilities.state_layers
        restarts = check_session(session, layers, executor.state_size, block_size)
        assert restarts <= done[str(number)].metrics.num_preemptions
    assert {layers for layers in executor.asked if layers} <= {LOW, tuple(sorted(HIGH)), (2, 5, 7, 9)}


def test_prompts_in_chunks_and_preemptions_do_happen() -> None:
    """The property above is not empty: a long prompt comes in pieces, and a full cache starts over."""
    executor = WatchedExecutor(num_blocks=12)
    known = drafters(executor)
    rig = make_rig(dict(known), executor=executor, max_batch_tokens=8)
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, drafter="low")
    rig.engine.add_request("0", list(range(1, 11)) * 2, params)
    rig.engine.add_request("1", [3] * 10, params)
    done = rig.finish()
    assert [step.committed for step in known["low"].sessions["0"].steps][:2] == [(), ()]
    assert done["1"].metrics.num_preemptions > 0
    assert check_session(known["low"].sessions["1"], LOW, executor.state_size) > 0


def test_nobody_who_asks_means_a_plain_forward() -> None:
    """One request with states makes the forwards it shares carry them, and no other."""
    executor = WatchedExecutor()
    known = drafters(executor)
    rig = make_rig(dict(known), executor=executor)
    long = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True, drafter="blind")
    short = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, drafter="high")
    rig.engine.add_request("0", [1, 2], long)
    rig.step()
    rig.engine.add_request("1", [3, 4], short)
    rig.finish()
    assert executor.asked[0] == executor.asked[-1] == ()
    assert tuple(sorted(HIGH)) in executor.asked


def test_a_stop_inside_a_draft_drops_the_states_behind_it() -> None:
    executor = WatchedExecutor()
    oracle = ScriptedDrafter(oracle_script(executor), DrafterCapabilities(state_layers=LOW))
    rig = make_rig({"scripted": oracle}, executor=executor)
    free = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    rig.engine.add_request("free", [1, 2], free)
    text = rig.finish()["free"].token_ids
    at = next(i for i in range(2, 7) if text[i] not in text[:i])
    params = SamplingParams(
        temperature=0,
        max_tokens=12,
        ignore_eos=True,
        drafter="scripted",
        num_draft_tokens=10,
        stop_token_ids=[text[at]],
    )
    rig.engine.add_request("0", [1, 2], params)
    assert rig.finish()["0"].token_ids == text[: at + 1]
    (step,) = oracle.sessions["0"].steps
    assert step.states is not None
    assert len(step.states) == 2 + at + 1  # the prompt and each committed token: all of them were drafted
    assert step.num_accepted_tokens == at + 1


def test_aborts_and_failed_forwards_leave_no_states_behind() -> None:
    """After a failure the drafter is stopped, so nobody wants states; the reply goes on as plain."""
    executor = WatchedExecutor(fail_at=2)
    known = drafters(executor)
    rig = make_rig(dict(known), executor=executor, max_batch_tokens=8)
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, drafter="low")
    rig.engine.add_request("0", [1, 2, 3], params)
    rig.engine.add_request("gone", [5] * 20, params)
    rig.step()
    rig.engine.abort("gone")
    rig.engine.check_integrity()
    failures = 0
    while rig.engine.has_unfinished:
        try:
            rig.step()
        except RuntimeError:
            failures += 1
    assert failures == 1
    assert [session.num_stops for session in known["low"].sessions.values()] == [1, 1]
    assert executor.asked[3:] == [()] * len(executor.asked[3:])
    rig.finish()


def test_states_are_copies() -> None:
    """A drafter may keep them: no later forward writes to them, and they hold no rejected rows alive."""
    executor = WatchedExecutor()
    drafter = ScriptedDrafter(chain_script([3, 4, 5]), DrafterCapabilities(state_layers=LOW))
    rig = make_rig({"scripted": drafter}, executor=executor)
    rig.engine.add_request("0", [1, 2], SamplingParams(temperature=0, max_tokens=6, drafter="scripted"))
    rig.finish()
    for step in drafter.sessions["0"].steps:
        assert step.states is not None
        assert step.states.rows.base is None
        assert step.states.rows.dtype == np.float32
