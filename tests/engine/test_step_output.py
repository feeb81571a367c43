"""What each step reports adds up to the reply: tokens, origins, log-probabilities, text."""

from __future__ import annotations

from paceline.sampling.params import SamplingParams
from support.engines import chain_script, make_rig, oracle_script, scripted
from support.fake_executor import FakeExecutor


def test_steps_add_up_to_the_reply() -> None:
    executor = FakeExecutor()
    rig = make_rig(scripted(oracle_script(executor)), executor=executor)
    params = SamplingParams(
        temperature=0.0, max_tokens=11, ignore_eos=True, logprobs=2, drafter="scripted", num_draft_tokens=3
    )
    rig.engine.add_request("0", [1, 2], params)
    reply, steps = rig.finish()["0"], rig.deltas["0"]
    assert len(steps) < 11
    assert tuple(token for step in steps for token in step.token_ids) == reply.token_ids
    assert tuple(origin for step in steps for origin in step.origins) == reply.origins
    assert tuple(entry for step in steps for entry in step.logprobs or ()) == reply.logprobs
    assert "".join(step.text for step in steps) == reply.text
    assert not any(step.rejected for step in steps)


def test_rejected_drafts_are_reported() -> None:
    rig = make_rig(scripted(chain_script([3, 3, 3])))
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True, drafter="scripted")
    rig.engine.add_request("0", [1, 2], params)
    reply, steps = rig.finish()["0"], rig.deltas["0"]
    num_rejected = sum(len(step.rejected) for step in steps)
    assert num_rejected == reply.metrics.num_draft_tokens - reply.metrics.num_accepted_tokens > 0
    assert {token for step in steps for token in step.rejected} == {3}
    assert all(step.logprobs is None for step in steps)
