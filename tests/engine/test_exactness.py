"""Greedy and seeded replies are bit-identical whatever drafts, batches, chunks and cache pressure do.

Compared with ``==``: token ids, text, finish and stop reason, logprobs (floats) and a hash of the logits'
bits.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.drafters.scripted import ScriptedDrafter
from paceline.engine.outputs import CompletionOutput
from paceline.sampling.params import SamplingParams
from support.engines import Rig, make_rig, oracle_script, random_script, run_alone, scripted
from support.fake_executor import FakeExecutor

PROMPT = st.lists(st.integers(1, 11), min_size=1, max_size=14)


@st.composite
def reproducible_params(draw: st.DrawFn) -> dict[str, Any]:
    """Settings whose reply must not depend on drafting: greedy, or seeded with any filters and penalties."""
    chosen: dict[str, Any] = {"max_tokens": draw(st.integers(1, 24)), "logprobs": draw(st.integers(0, 3))}
    if draw(st.booleans()):
        chosen |= {
            "temperature": draw(st.sampled_from([0.3, 1.0, 2.0])),
            "seed": draw(st.integers(0, 2**64 - 1)),
        }
        chosen |= draw(
            st.sampled_from([{}, {"top_p": 0.8}, {"top_k": 3}, {"min_p": 0.2}, {"top_k": 6, "top_p": 0.9}])
        )
    else:
        chosen["temperature"] = 0.0
    extras = [
        {"repetition_penalty": 1.3},
        {"frequency_penalty": 0.7, "presence_penalty": -0.4},
        {"logit_bias": {3: 4.0, 5: -100.0}},
        {"stop": ["bc", "ddd", "ka"]},
        {"stop_token_ids": [4, 7]},
        {"ignore_eos": True},
    ]
    for extra in draw(st.lists(st.sampled_from(extras), max_size=3)):
        chosen |= extra
    chosen["min_tokens"] = draw(st.integers(0, chosen["max_tokens"]))
    return chosen


REQUESTS = st.lists(
    st.tuples(PROMPT, reproducible_params(), st.integers(0, 8), st.sampled_from(["none", "scripted"])),
    min_size=1,
    max_size=4,
)


def same(plain: CompletionOutput, drafted: CompletionOutput) -> None:
    for name in ("token_ids", "text", "finish_reason", "stop_reason", "logprobs", "logit_hashes"):
        assert getattr(plain, name) == getattr(drafted, name), name
    assert plain.cumulative_logprob == drafted.cumulative_logprob


def submit(rig: Rig, number: int, request: tuple[list[int], dict[str, Any], int, str]) -> None:
    prompt, chosen, k, drafter = request
    extra = {} if drafter == "none" else {"num_draft_tokens": k}
    rig.engine.add_request(str(number), prompt, SamplingParams(**chosen, drafter=drafter, **extra))


@settings(max_examples=150, deadline=None)
@given(
    requests=REQUESTS,
    script=st.tuples(
        st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.sampled_from([0.0, 0.4])
    ),
    batch=st.tuples(st.integers(1, 4), st.sampled_from([4, 7, 64]), st.sampled_from([2, 4, 16])),
    spare_blocks=st.integers(0, 30),
)
def test_replies_do_not_depend_on_drafts_or_batches(
    requests: list[tuple[list[int], dict[str, Any], int, str]],
    script: tuple[int, float, float],
    batch: tuple[int, int, int],
    spare_blocks: int,
) -> None:
    max_num_requests, max_batch_tokens, block_size = batch
    least = -(-40 // block_size)  # one request of any size must fit alone; the rest comes down to preemption
    executor = FakeExecutor(block_size=block_size, num_blocks=least + spare_blocks)
    drafter = ScriptedDrafter(random_script(*script, executor))
    rig = make_rig(
        {"scripted": drafter},
        executor=executor,
        max_num_requests=max_num_requests,
        max_batch_tokens=max(max_batch_tokens, max_num_requests),
    )
    rng = random.Random(script[0])
    for number, request in enumerate(requests):
        submit(rig, number, request)
        for _ in range(rng.randint(0, 3)):  # later requests join while earlier ones run
            rig.step()
    done = rig.finish()
    for number, (prompt, chosen, _, _) in enumerate(requests):
        same(run_alone(prompt, SamplingParams(**chosen)), done[str(number)])
        assert "".join(output.text for output in rig.deltas[str(number)]) == done[str(number)].text
    assert all(session.num_stops == 1 for session in drafter.sessions.values())


def test_right_drafts_save_forwards() -> None:
    """A drafter that is always right makes a step commit k + 1 tokens, in the prompt's forward already."""
    executor = FakeExecutor()
    rig = make_rig(scripted(oracle_script(executor)), executor=executor)
    params = SamplingParams(
        temperature=0, max_tokens=20, ignore_eos=True, drafter="scripted", num_draft_tokens=4
    )
    rig.engine.add_request("0", [1, 2, 3], params)
    reply = rig.finish()["0"]
    assert reply.metrics.num_forwards == reply.metrics.num_verify_steps == 4
    assert reply.metrics.num_accepted_tokens == reply.metrics.num_draft_tokens == 16
    assert reply.metrics.tokens_per_step == 5.0
    assert reply.metrics.acceptance_rate_at == (1.0,) * 4
    assert reply.origins == ("accepted",) * 4 + ("bonus",) + (("accepted",) * 4 + ("bonus",)) * 3


def test_a_misplaced_slot_changes_the_logits() -> None:
    """The tests above can fail: without compaction a tree's kept branch is read from wrong slots."""
    executor = FakeExecutor()
    executor.move_slots = lambda source, destination: None  # type: ignore[method-assign]
    rig = make_rig(scripted(random_script(5, 0.6, 0.6, executor)), executor=executor)
    drafted = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, drafter="scripted")
    rig.engine.add_request("0", [1, 2], drafted)
    plain = run_alone([1, 2], SamplingParams(temperature=0, max_tokens=40, ignore_eos=True))
    assert rig.finish()["0"].logit_hashes != plain.logit_hashes
