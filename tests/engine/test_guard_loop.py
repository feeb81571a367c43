"""The guard and the load of a batch in the real loop: times by the cost table, texts as in plain decoding."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

import pytest

from paceline.config import SpecConfig
from paceline.control.decisions import Decision, StepRecord
from paceline.control.default_costs import CONSERVATIVE_COSTS
from paceline.control.guard import RATE, START, Guard
from paceline.drafters.auto import AutoDrafter, AutoOptions
from paceline.drafters.base import DraftContext, DrafterCapabilities
from paceline.drafters.scripted import ScriptedDrafter
from paceline.drafters.verify_cost import VerifyCost
from paceline.engine.draft import Pacing
from paceline.errors import ConfigError
from paceline.records import BatchLoad, Draft, StepObservation
from paceline.sampling.params import SamplingParams
from support.engines import Rig, chain_script, make_rig, oracle_script, run_alone, scripted
from support.fake_executor import FakeExecutor

PARAMS = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
WRONG = chain_script([11] * 7)  # a token that a greedy reply of the fake executor seldom holds


def rig_of(drafters: dict[str, object], name: str, guard: bool | None = True, **settings: int) -> Rig:
    executor = FakeExecutor(num_blocks=2048)
    return make_rig(
        drafters,  # type: ignore[arg-type]
        executor=executor,
        spec=SpecConfig(name, guard=guard),
        max_model_len=160,
        max_num_requests=32,
        max_draft_rows=256,
        max_batch_tokens=512,
        **{"record_decisions": True, **settings},
    )


def slowdown(steps: tuple[StepRecord, ...] | None) -> float:
    """Return modelled time ÷ that of plain decoding."""
    assert steps
    return sum(1 + step.draft_cost for step in steps) / sum(step.num_committed for step in steps)


@pytest.mark.parametrize("batch", [1, 8, 32])
def test_an_always_wrong_drafter_is_silenced_with_one_warning(
    batch: int, caplog: pytest.LogCaptureFixture
) -> None:
    rig = rig_of(scripted(WRONG), "scripted")  # type: ignore[arg-type]
    prompts = {str(n): [n % 9 + 1, n % 7 + 1] for n in range(batch)}
    with caplog.at_level(logging.WARNING):
        for name, prompt in prompts.items():
            rig.engine.add_request(name, prompt, PARAMS)
        done = rig.finish()
    for name, prompt in prompts.items():
        steps = done[name].steps
        assert steps is not None
        assert slowdown(steps) <= (1 + RATE) + START / 100
        assert slowdown(tuple(step for step in steps if step.position >= 64)) <= 1 / 0.97
        plain = run_alone(prompt, PARAMS, max_model_len=160)
        assert done[name].token_ids == plain.token_ids
        assert done[name].logit_hashes == plain.logit_hashes
    (record,) = caplog.records
    assert "drafter scripted costs more time than it saves" in record.getMessage()


def test_a_right_drafter_drafts_on() -> None:
    executor = FakeExecutor(num_blocks=2048)
    rig = rig_of(scripted(oracle_script(executor)), "scripted")  # type: ignore[arg-type]
    rig.engine.add_request("r", [3, 1], PARAMS)
    reply = rig.finish()["r"]
    assert reply.metrics.tokens_per_step > 6
    assert slowdown(reply.steps) < 0.4


def test_guarded_requests_of_an_engine_share_their_savings() -> None:
    """Who is not guarded neither saves nor spends; a drafter that is forgotten takes its gains along."""
    executor = FakeExecutor(num_blocks=2048)
    drafters = {**scripted(oracle_script(executor)), "auto": ScriptedDrafter(oracle_script(executor))}
    rig = rig_of(drafters, "scripted", guard=None)
    for number, (drafter, saved) in enumerate((("scripted", False), ("auto", True))):
        rig.engine.add_request(str(number), [3, 1], replace(PARAMS, drafter=drafter))
        rig.finish()
        assert (rig.engine._savings.balance > START) == saved
    rig.engine.forget_drafters()
    assert rig.engine._savings.balance == 0.0


def test_only_auto_is_guarded_unless_asked_for() -> None:
    """Whoever names a drafter measures it, and gets all it drafts."""
    drafted = []
    for guard in (None, False, True):
        rig = rig_of(scripted(WRONG), "scripted", guard)  # type: ignore[arg-type]
        rig.engine.add_request("r", [3, 1], PARAMS)
        drafted.append(rig.finish()["r"].metrics.num_draft_tokens)
    assert drafted[0] == drafted[1] > 600
    assert drafted[2] < 80
    assert SpecConfig("auto").is_guarded("auto")
    assert not SpecConfig("auto").is_guarded("ngram")
    with pytest.raises(ConfigError, match="guard='yes'"):
        SpecConfig("auto", guard="yes")  # type: ignore[arg-type]


@dataclass
class Listening:
    """An adaptive drafter that drafts as many wrong tokens as there are deciding requests."""

    name: str = "listening"
    rest: int = 0
    loads: list[BatchLoad] = field(default_factory=list)
    told: list[tuple[int, ...]] = field(default_factory=list)
    capabilities: DrafterCapabilities = field(default_factory=lambda: DrafterCapabilities(is_adaptive=True))

    def start(self, context: DraftContext) -> ListeningSession:
        return ListeningSession(self.loads, self.told, self.rest)


class ListeningSession:
    spent = 0.0
    wants_states = False
    decision: Decision | None = None

    def __init__(self, loads: list[BatchLoad], told: list[tuple[int, ...]], rest: int) -> None:
        self._loads = loads
        self._told = told
        self.rest = rest
        self._load = BatchLoad()

    def meet(self, load: BatchLoad) -> None:
        self._load = load
        self._loads.append(load)

    def propose(self, budget: int) -> Draft:
        return Draft.chain([11] * min(budget, self._load.num_requests))

    def observe(self, step: StepObservation) -> None:
        self._told.append(step.committed)

    def stop(self) -> None:
        pass


def test_a_session_that_rests_is_left_alone_and_misses_nothing() -> None:
    """In a full batch, asking each silent session and telling it of each token took 2 % of every step."""
    drafter = Listening(rest=5)
    rig = rig_of({"listening": drafter}, "listening", None)
    rig.engine.add_request("r", [3, 1], PARAMS)
    reply = rig.finish()["r"]
    told = [token for tokens in drafter.told for token in tokens]
    assert tuple(told) == reply.token_ids
    assert len(drafter.loads) <= -(-100 // 6) + 1
    assert {len(tokens) for tokens in drafter.told[1:-2:2]} == {5}
    assert reply.token_ids == run_alone([3, 1], PARAMS, max_model_len=160).token_ids


@pytest.mark.parametrize("wants", [{}, {"num_top_tokens": 2}])
def test_a_drafter_that_is_held_back_is_told_later_and_misses_nothing(wants: dict[str, int]) -> None:
    """Only adaptive drafters were told later of steps in which they were not asked. One that the guard had
    silenced was told of each token of each request: 32 requests behind an always-wrong drafter went on at
    0.95 of plain's speed. Who wants the target's likeliest tokens is still told of each step.
    """
    told: list[tuple[int, ...]] = []

    class Held(ListeningSession):
        def propose(self, budget: int) -> Draft:
            return Draft.chain([11] * min(budget, 7))

    class Wrong(Listening):
        def start(self, context: DraftContext) -> ListeningSession:
            return Held([], told, 0)

    rig = rig_of({"wrong": Wrong(capabilities=DrafterCapabilities(**wants))}, "wrong")
    rig.engine.add_request("r", [3, 1], PARAMS)
    reply = rig.finish()["r"]
    assert reply.steps is not None
    assert tuple(token for tokens in told for token in tokens) == reply.token_ids
    asked = sum(step.num_drafted > 0 for step in reply.steps)
    assert asked < 30
    # Asked in turn with held back: told of the former, and together of the latter.
    assert len(told) == len(reply.steps) if wants else len(told) <= 2 * asked + 1


@pytest.mark.parametrize("load, steps", [(BatchLoad(8, 8), 16), (BatchLoad(1, 1), 64)])
def test_states_are_copied_no_longer_once_no_draft_came_of_them(load: BatchLoad, steps: int) -> None:
    """The ledger kept a head from being asked, so it never learnt that it should go: at temperature 1.5,
    eight requests had their states copied to the end, for 3 % of the time.
    """
    pacing = Pacing(Guard(CONSERVATIVE_COSTS, "auto"), is_guarded=True, is_adaptive=True)
    for position in range(steps):
        assert pacing.wants_states
        pacing.open(7, load)
        pacing.settle(position, int(position == 0), 0, 1)
    pacing.open(7, load)
    assert pacing.wants_states, "a draft in between counts"
    pacing.settle(steps, 0, 0, 1)
    pacing.open(7, load)
    assert not pacing.wants_states


def test_what_was_said_in_a_full_batch_is_known_afterwards() -> None:
    """Sources that rest to the end of a request still hand its reply on to later ones."""
    dear = VerifyCost((1.0, 1.02, 1.05, 1.2, 1.4, 1.6, 1.8, 1.95, 3.5))
    rig = rig_of({"auto": AutoDrafter(AutoOptions(dear))}, "auto", None, record_decisions=False)
    for n in range(8):
        rig.engine.add_request(str(n), [n, 7, 5, 2, n, 3], PARAMS)
    done = rig.finish()
    assert sum(reply.metrics.num_draft_tokens for reply in done.values()) == 0
    rig.engine.add_request("again", [3, 7, 5, 2, 3, 3], PARAMS)
    again = rig.finish()["again"]
    assert again.token_ids == done["3"].token_ids
    assert again.metrics.tokens_per_step > 2.0


def test_each_drafter_is_told_the_rows_before_it() -> None:
    drafter = Listening()
    rig = rig_of({"listening": drafter}, "listening", None)
    for name in "abc":
        rig.engine.add_request(name, [ord(name) % 9 + 1, 1], PARAMS)
    rig.step()  # prompts: two rows each, and three requests that decide
    rig.step()
    assert drafter.loads[3:6] == [BatchLoad(3, 3), BatchLoad(6, 3), BatchLoad(9, 3)]
    assert drafter.loads[0] == BatchLoad(6, 3)
    done = rig.finish()
    alone = rig_of({"listening": Listening()}, "listening", None)
    alone.engine.add_request("a", [ord("a") % 9 + 1, 1], PARAMS)
    assert alone.finish()["a"].token_ids == done["a"].token_ids


def test_a_session_that_only_says_it_adapts_ends_drafting_not_the_request() -> None:
    liar = ScriptedDrafter(WRONG, DrafterCapabilities(is_adaptive=True), "liar")
    rig = rig_of({"liar": liar}, "liar")
    rig.engine.add_request("r", [3, 1], PARAMS)
    reply = rig.finish()["r"]
    assert reply.token_ids == run_alone([3, 1], PARAMS, max_model_len=160).token_ids
    assert reply.metrics.num_drafts == 0


def test_auto_decides_the_same_twice_and_keeps_its_reasons() -> None:
    runs = []
    for _ in range(2):
        rig = rig_of({"auto": AutoDrafter()}, "auto", None)
        for name in "ab":
            rig.engine.add_request(name, [ord(name) % 9 + 1, 1], PARAMS)
        done = rig.finish()
        runs.append((done["a"].steps, done["b"].steps))
        assert done["a"].token_ids == run_alone([ord("a") % 9 + 1, 1], PARAMS, max_model_len=160).token_ids
    assert runs[0] == runs[1]
    steps = runs[0][0]
    assert steps is not None
    drafted = [step for step in steps if step.num_drafted]
    assert drafted
    for step in drafted:
        assert step.decision is not None
        assert step.decision.num_nodes == step.num_drafted
        assert step.decision.predicted_speed > 1.0
        assert step.decision.candidates
    assert sum(step.num_committed for step in steps) == 100


def test_auto_drafts_less_in_a_full_batch() -> None:
    """Identical requests that repeat themselves: alone they draft long, among thirty-two hardly."""
    shares = []
    for batch in (1, 32):
        rig = rig_of({"auto": AutoDrafter()}, "auto", None)
        for n in range(batch):
            rig.engine.add_request(str(n), [1, 2, 3, 4, 5] * 4, PARAMS)
        done = rig.finish()
        shares.append(sum(done[str(n)].metrics.num_draft_tokens for n in range(batch)) / batch)
        assert all(slowdown(done[str(n)].steps) <= 1.03 for n in range(batch))
    assert shares[1] < 0.7 * shares[0]


def test_records_are_off_by_default() -> None:
    assert run_alone([3, 1], PARAMS, max_model_len=160).steps is None
