"""Who runs next, who gives way, who waits no longer: turns, priorities, shares of a forward, limits."""

from __future__ import annotations

import time

import pytest

from paceline.engine.terms import QueueTerms
from paceline.errors import ConfigError, QueueFullError
from paceline.sampling.params import SamplingParams
from support.engines import Rig, make_rig, run_alone
from support.fake_executor import FakeExecutor

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
SHORT = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)


def order_of_starts(rig: Rig) -> list[str]:
    """Run to the end; return the requests in the order of their first token."""
    while rig.engine.has_unfinished:
        rig.step()
    return list(rig.deltas)


def test_clients_take_turns_whoever_came_first() -> None:
    rig = make_rig(max_num_requests=1)
    for number in range(4):
        rig.engine.add_request(f"greedy-{number}", [1, 2], SHORT, QueueTerms(client="greedy"))
    rig.engine.add_request("b-0", [1, 2], SHORT, QueueTerms(client="b"))
    rig.engine.add_request("c-0", [1, 2], SHORT, QueueTerms(client="c"))
    rig.engine.add_request("b-1", [1, 2], SHORT, QueueTerms(client="b"))
    assert order_of_starts(rig) == ["greedy-0", "b-0", "c-0", "greedy-1", "b-1", "greedy-2", "greedy-3"]


def test_better_priorities_run_first() -> None:
    rig = make_rig(max_num_requests=1)
    for number, priority in enumerate([5, 0, -3, 0]):
        rig.engine.add_request(str(number), [1, 2], SHORT, QueueTerms(priority=priority))
    assert order_of_starts(rig) == ["2", "1", "3", "0"]


def test_a_better_priority_takes_the_place_of_the_worst_and_gives_it_back() -> None:
    rig = make_rig(max_num_requests=2)
    rig.engine.add_request("late", [1, 2], GREEDY, QueueTerms(priority=2))
    rig.engine.add_request("normal", [1, 3], GREEDY)
    rig.step()
    rig.engine.add_request("urgent", [1, 4], GREEDY, QueueTerms(priority=-1))
    assert {output.request_id for output in rig.step()} == {"normal", "urgent"}
    done = rig.finish()
    assert done["late"].metrics.num_preemptions == 1
    assert done["normal"].metrics.num_preemptions == 0
    assert done["late"].token_ids == run_alone([1, 2], GREEDY).token_ids


def test_equals_never_take_each_others_place() -> None:
    rig = make_rig(max_num_requests=1)
    rig.engine.add_request("0", [1, 2], GREEDY)
    rig.step()
    rig.engine.add_request("1", [1, 3], GREEDY)
    rig.finish()
    assert rig.done["0"].metrics.num_preemptions == 0


def test_blocks_are_taken_from_the_worst_priority_then_from_the_youngest() -> None:
    executor = FakeExecutor(num_blocks=12, block_size=4)
    rig = make_rig(executor=executor, max_model_len=40)
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    priorities = {"old": 1, "urgent": 0, "young": 0}
    for number, (name, priority) in enumerate(priorities.items()):
        rig.engine.add_request(name, [1 + number, 2, 3, 4], params, QueueTerms(priority=priority))
    done = rig.finish()
    preemptions = {name: done[name].metrics.num_preemptions for name in priorities}
    assert preemptions["old"] > 0
    assert preemptions["urgent"] == preemptions["young"] == 0
    for number, name in enumerate(priorities):
        assert done[name].token_ids == run_alone([1 + number, 2, 3, 4], params).token_ids


def test_nobody_gives_way_to_a_request_that_does_not_fit_even_then() -> None:
    executor = FakeExecutor(num_blocks=10, block_size=4)
    rig = make_rig(executor=executor, max_model_len=40)
    rig.engine.add_request("big", list(range(1, 12)) * 2, GREEDY)
    rig.engine.add_request("small", [1, 2], GREEDY, QueueTerms(priority=1))
    rig.step()
    rig.engine.add_request("same", list(range(11, 0, -1)) * 2, GREEDY)
    rig.step()
    assert rig.engine.running_ids == ("big", "small")
    rig.finish()
    assert rig.done["small"].metrics.num_preemptions == 0


def test_a_short_prompt_does_not_stand_behind_a_long_one() -> None:
    """Half of the rows go to the oldest prompt, half to the shortest."""
    rig = make_rig(max_batch_tokens=8, max_num_requests=4)
    rig.engine.add_request("long", [1 + i % 9 for i in range(60)], GREEDY)
    rig.step()
    rig.engine.add_request("short", [9, 8, 7, 6, 5, 4], GREEDY)
    rig.step()
    assert [output.request_id for output in rig.step()] == ["short"]
    rig.finish()


def test_prompts_of_better_priority_are_read_first() -> None:
    rig = make_rig(max_batch_tokens=8, max_num_requests=4)
    rig.engine.add_request("long", [1 + i % 9 for i in range(60)], GREEDY, QueueTerms(priority=1))
    rig.step()
    rig.engine.add_request("urgent", [9, 8, 7, 6, 5, 4, 3, 2], GREEDY)
    assert [output.request_id for output in rig.step()] == ["urgent"]
    rig.finish()


def test_a_prompt_beside_decoding_requests_is_read_at_the_measured_pace() -> None:
    rig = make_rig(max_num_requests=4, prompt_stretch=2.0)
    scheduler = rig.engine._scheduler
    scheduler.learn = lambda *_: None  # type: ignore[method-assign]  # the machine's own times would decide
    for _ in range(50):
        scheduler.pace.learn(1, 0, 0.010)
        scheduler.pace.learn(1, 20, 0.0196)  # 0.48 ms for each prompt row
    rig.engine.add_request("decodes", [1, 2], SamplingParams(temperature=0, max_tokens=9, ignore_eos=True))
    rig.step()
    rig.engine.add_request("long", [1 + i % 9 for i in range(60)], GREEDY)
    for _ in range(2):
        assert [output.request_id for output in rig.step()] == ["decodes"]
    assert [len(batch.tokens) for batch in rig.executor.batches[1:3]] == [1 + 20, 1 + 20]
    rig.finish()


def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    rig = make_rig(max_num_requests=1, max_queue=2)
    for number in range(3):
        rig.engine.add_request(str(number), [1, 2], GREEDY)
        rig.step()
    with pytest.raises(QueueFullError, match="max_queue=2") as caught:
        rig.engine.add_request("3", [1, 2], GREEDY)
    assert caught.value.retry_after >= 1.0
    assert rig.engine.load.num_waiting == 2
    rig.engine.abort("2")
    rig.engine.add_request("3", [1, 2], GREEDY)
    assert set(rig.finish()) == {"0", "1", "3"}


def test_a_preempted_request_is_not_counted_as_queued() -> None:
    rig = make_rig(max_num_requests=1, max_queue=1)
    rig.engine.add_request("late", [1, 2], GREEDY, QueueTerms(priority=1))
    rig.step()
    rig.engine.add_request("urgent", [1, 2], GREEDY)
    rig.step()
    assert rig.engine.running_ids == ("urgent",)
    rig.engine.add_request("next", [1, 2], GREEDY)
    assert set(rig.finish()) == {"late", "urgent", "next"}


def test_who_waits_too_long_ends_without_a_token() -> None:
    rig = make_rig(max_num_requests=1)
    rig.engine.add_request("runs", [1, 2], GREEDY, QueueTerms(max_queue_time=5))
    rig.engine.add_request("waits", [1, 2], GREEDY, QueueTerms(max_queue_time=5))
    rig.step()
    rig.engine._clock = lambda: time.perf_counter() + 6
    rig.step()
    late = rig.done["waits"]
    assert (late.finish_reason, late.stop_reason, late.token_ids) == ("timeout", "max_queue_time", ())
    assert rig.finish()["runs"].finish_reason == "length"


def test_at_its_deadline_a_request_ends_with_what_it_has() -> None:
    rig = make_rig()
    rig.engine.add_request("0", [1, 2], GREEDY, QueueTerms(deadline=5))
    rig.step()
    rig.step()
    rig.engine._clock = lambda: time.perf_counter() + 6
    (output,) = rig.step()
    assert (output.token_ids, output.origins) == ((), ())
    assert output.completion is not None
    assert output.completion.finish_reason == "timeout"
    assert output.completion.stop_reason == "deadline"
    assert output.completion.token_ids == run_alone([1, 2], GREEDY).token_ids[:2]
    assert not rig.engine.has_unfinished
    assert rig.engine.num_free_blocks == rig.executor.num_blocks


@pytest.mark.parametrize(
    "wrong", [{"priority": 1.5}, {"priority": 10**6}, {"client": 3}, {"deadline": float("nan")}, {"late": 1}]
)
def test_terms_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        QueueTerms(**wrong)  # type: ignore[arg-type]


def test_a_prompt_stands_still_for_a_step_so_that_replies_are_timed_alone() -> None:
    rig = make_rig(max_num_requests=4, max_model_len=512, prompt_stretch=1.5)
    scheduler = rig.engine._scheduler
    learn = scheduler.pace.learn
    scheduler.learn = lambda *_: None  # type: ignore[method-assign]  # the machine's own times would decide
    rig.engine.add_request("decodes", [1, 2], SamplingParams(temperature=0, max_tokens=90, ignore_eos=True))
    rig.step()
    rig.engine.add_request("long", [1 + i % 9 for i in range(200)], GREEDY)
    sizes = []
    for _ in range(36):
        assert [output.request_id for output in rig.step()] == ["decodes"]
        sizes.append(len(rig.executor.batches[-1].tokens))
        learn(1, sizes[-1] - 1, 0.001 * sizes[-1])
    assert sizes.count(1) == 1 and sizes[32] == 1
    assert min(sizes[:32] + sizes[33:]) > 1
    rig.finish()
