"""Requests share rows and blocks, join and leave at any step, and give up the cache youngest first."""

from __future__ import annotations

import pytest

from paceline.config import EngineConfig, SpecConfig
from paceline.drafters.scripted import ScriptedDrafter
from paceline.errors import CacheFullError, ConfigError, PromptError
from paceline.sampling.params import SamplingParams
from support.engines import make_rig, oracle_script, random_script, run_alone, scripted
from support.fake_executor import FakeExecutor

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def test_a_long_prompt_is_read_in_chunks_beside_decoding_requests() -> None:
    rig = make_rig(max_batch_tokens=8, max_num_requests=4)
    rig.engine.add_request("first", [1, 2], GREEDY)
    rig.step()
    rig.engine.add_request("long", [1 + i % 9 for i in range(30)], GREEDY)
    for _ in range(4):
        assert [output.request_id for output in rig.step()] == ["first"]
    assert [len(batch.tokens) for batch in rig.executor.batches[1:5]] == [8, 8, 8, 8]
    assert {output.request_id for output in rig.step()} == {"first", "long"}
    done = rig.finish()
    assert done["long"].metrics.num_forwards == done["long"].metrics.num_verify_steps + 4


def test_the_youngest_is_preempted_and_comes_back_with_the_same_reply() -> None:
    executor = FakeExecutor(num_blocks=9, block_size=4)
    drafter = ScriptedDrafter(random_script(3, 0.7, 0.3, executor))
    rig = make_rig({"scripted": drafter}, executor=executor, max_model_len=30)
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, drafter="scripted")
    for number in range(3):
        rig.engine.add_request(str(number), [1 + number, 2, 3, 4], params)
    done = rig.finish()
    preemptions = [done[str(number)].metrics.num_preemptions for number in range(3)]
    assert preemptions[0] == 0
    assert sum(preemptions) > 0
    for number in range(3):
        plain = run_alone(
            [1 + number, 2, 3, 4], SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
        )
        assert done[str(number)].token_ids == plain.token_ids
        assert done[str(number)].logit_hashes == plain.logit_hashes


def test_drafts_never_cost_another_request_its_blocks() -> None:
    """Two requests fit exactly without drafts: drafting must shrink, not preempt."""
    executor = FakeExecutor(num_blocks=8, block_size=4)
    rig = make_rig(scripted(oracle_script(executor)), executor=executor, max_model_len=20)
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, drafter="scripted")
    for number in range(2):
        rig.engine.add_request(str(number), [1 + number, 2, 3, 4], params)
    done = rig.finish()
    assert all(reply.metrics.num_preemptions == 0 for reply in done.values())
    assert all(reply.metrics.num_accepted_tokens > 0 for reply in done.values())


def test_draft_rows_are_shared_evenly() -> None:
    executor = FakeExecutor()
    rig = make_rig(scripted(oracle_script(executor)), executor=executor, max_draft_rows=5)
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, drafter="scripted")
    for number in range(3):
        rig.engine.add_request(str(number), [1 + number, 2], params)
    assert [len(output.token_ids) - 1 for output in rig.step()] == [2, 2, 1]
    rig.finish()


def test_a_cache_that_was_lent_away_is_an_error_not_a_hang() -> None:
    rig = make_rig()
    rig.engine.add_request("0", [1, 2], GREEDY)
    lent = rig.engine.pool.take(rig.engine.num_free_blocks)
    with pytest.raises(CacheFullError, match="borrowed"):
        rig.engine.step()
    for block in lent:
        rig.engine.pool.give_back(block)
    assert len(rig.finish()["0"].token_ids) == 12


def test_no_more_requests_run_than_allowed() -> None:
    rig = make_rig(max_num_requests=2)
    for number in range(5):
        rig.engine.add_request(str(number), [1, 2], GREEDY)
    assert {output.request_id for output in rig.step()} == {"0", "1"}
    assert len(rig.finish()) == 5


def test_abort_at_any_step_frees_everything() -> None:
    for steps in range(6):
        executor = FakeExecutor()
        drafter = ScriptedDrafter(random_script(2, 0.8, 0.3, executor))
        rig = make_rig({"scripted": drafter}, executor=executor, max_num_requests=2)
        params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, drafter="scripted")
        for number in range(3):
            rig.engine.add_request(str(number), [1, 2, 3], params)
        for _ in range(steps):
            rig.step()
        for number in (1, 2):
            reply = rig.engine.abort(str(number))
            rig.engine.check_integrity()
            assert reply is None or reply.finish_reason == "abort"
            assert rig.engine.abort(str(number)) is None
        assert rig.finish()["0"].token_ids == run_alone([1, 2, 3], GREEDY).token_ids
        assert all(session.num_stops == 1 for session in drafter.sessions.values())


def test_requests_that_cannot_run_are_refused_and_the_engine_goes_on() -> None:
    rig = make_rig(executor=FakeExecutor(num_blocks=4, block_size=4), max_model_len=32)
    cases = [
        (PromptError, "empty", [], GREEDY),
        (PromptError, "max_model_len=32", [1] * 32, GREEDY),
        (PromptError, "token 12 is outside", [1, 12], GREEDY),
        (PromptError, "token -1 is outside", [-1], GREEDY),
        (CacheFullError, "raise kv_cache_tokens", [1] * 10, GREEDY),
        (ConfigError, "stop_token_ids holds 99", [1], SamplingParams(stop_token_ids=[99])),
        (ConfigError, "logit_bias holds 99", [1], SamplingParams(logit_bias={99: 1.0})),
        (ConfigError, "logprobs=13", [1], SamplingParams(logprobs=13)),
        (ConfigError, "n=2", [1], SamplingParams(n=2)),
        (ConfigError, "prediction is text", [1], SamplingParams(prediction="abc")),
    ]
    for error, message, prompt, params in cases:
        with pytest.raises(error, match=message):
            rig.engine.add_request("x", prompt, params)
    rig.engine.add_request("0", [1, 2], SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))
    with pytest.raises(ConfigError, match="running already"):
        rig.engine.add_request("0", [1, 2], GREEDY)
    assert len(rig.finish()["0"].token_ids) == 3


def test_the_greedy_rule_is_refused_for_sampling_requests() -> None:
    rig = make_rig(scripted(lambda *_: None), spec=SpecConfig("scripted", acceptance="greedy"))
    with pytest.raises(ConfigError, match="acceptance='greedy'"):
        rig.engine.add_request("0", [1], SamplingParams(temperature=0.5))


def test_a_prediction_brings_its_drafter() -> None:
    executor = FakeExecutor()
    drafter = ScriptedDrafter(lambda known, budget, sampler: oracle_script(executor)(known, budget, sampler))
    rig = make_rig({"prediction": drafter}, executor=executor)
    rig.engine.add_request("0", [1, 2], SamplingParams(temperature=0, prediction=[3, 4]))
    assert rig.finish()["0"].metrics.num_accepted_tokens > 0
    with pytest.raises(ConfigError, match="prediction holds 44"):
        rig.engine.add_request("1", [1], SamplingParams(prediction=[44]))


def test_engine_config_is_checked_against_itself() -> None:
    with pytest.raises(ConfigError):
        EngineConfig(max_model_len=8, max_num_requests=0)
