"""``auto`` with a draft head: asked where it pays, idle where cheap sources are sure, dropped if it fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.drafters.auto import AutoDrafter, AutoOptions, AutoSession
from paceline.drafters.auto_head import MOST_HELD
from paceline.drafters.base import DraftContext
from paceline.drafters.eagle3 import Eagle3Options
from paceline.drafters.verify_cost import VerifyCost
from paceline.errors import ConfigError
from paceline.records import EMPTY_DRAFT, BatchLoad, Draft, HiddenStates, StepObservation
from support.draft_play import ArgmaxSampler, accept, observation
from support.fake_executor import FakeExecutor, path_logits
from support.fake_head import LAYERS, FakeHead, all_ids, head_drafter, true_states

TARGET = FakeExecutor(vocab_size=40)
PERIOD = [1, 2, 3, 4, 5, 6, 7, 8, 9]


def opened(
    step_cost: float = 0.05, fail_at: int = -1, cost: VerifyCost | None = None
) -> tuple[AutoDrafter, FakeHead]:
    head = FakeHead(TARGET, all_ids(TARGET), num_blocks=100, fail_at=fail_at)
    options = AutoOptions(cost or VerifyCost(), eagle3=Eagle3Options(step_cost=step_cost))
    return AutoDrafter(options, head_drafter(head, options.eagle3)), head


def start(drafter: AutoDrafter, prompt: list[int]) -> AutoSession:
    return drafter.start(DraftContext("r", tuple(prompt), ArgmaxSampler()))


def told(
    known: list[int], committed: list[int], draft: Draft = EMPTY_DRAFT, first: int = -1
) -> StepObservation:
    """Return what the engine says of a step; ``first``: where its states begin."""
    everything, start = tuple(known + committed), len(known) - 1 if first < 0 else first
    plain = observation(draft, accept(draft, committed), tuple(committed), known[-1], TARGET.vocab_size)
    states = HiddenStates(start, true_states(everything, start, len(everything) - 1))
    return StepObservation(
        plain.committed, plain.num_accepted_tokens, draft, plain.verified_tokens, plain.top_tokens, states
    )


def run(session: AutoSession, known: list[int], reply: list[int], budget: int = 7) -> int:
    """Play ``reply`` against the session; return the number of steps."""
    steps = 0
    while reply:
        draft = session.propose(budget)
        kept = min(accept(draft, reply), len(reply) - 1)
        committed, reply = reply[: kept + 1], reply[kept + 1 :]
        session.observe(told(known, committed, draft))
        known += committed
        steps += 1
    return steps


def written(known: list[int], count: int) -> list[int]:
    """What the fake target writes behind ``known``."""
    text = list(known)
    for _ in range(count):
        text.append(int(path_logits(tuple(text), TARGET.vocab_size, TARGET.spread).argmax()))
    return text[len(known) :]


def test_a_good_head_makes_fewer_steps() -> None:
    reply = written([3, 1, 4, 1], 60)
    steps = {}
    for name in ("with", "without"):
        drafter, _ = opened()
        if name == "without":
            drafter.head = None
        session = start(drafter, [3, 1, 4])
        session.observe(told([3, 1, 4], [1], first=0))
        steps[name] = run(session, [3, 1, 4, 1], list(reply))
    assert steps["with"] < 0.7 * steps["without"]


def test_a_sure_copy_leaves_the_head_waiting_and_it_catches_up_in_one_pass() -> None:
    drafter, head = opened()
    session = start(drafter, PERIOD * 4)
    session.observe(told(PERIOD * 4, PERIOD[:1], first=0))
    known = [*PERIOD * 4, *PERIOD[:1]]
    run(session, known, PERIOD[1:] + PERIOD)
    passes = len(head.rows_per_pass)
    before = len(known)
    run(session, known, PERIOD * 6)
    assert len(head.rows_per_pass) == passes
    assert session._head.session is not None
    assert session._head.session.num_cached <= before
    run(session, known, [30, 12, 25, 11, 38])  # nothing the prompt knows
    assert head.rows_per_pass[passes] > len(PERIOD) * 6
    assert session._head.session.num_cached >= len(known) - 8


@pytest.mark.parametrize(("step_cost", "most"), [(0.05, 40), (0.5, 16)])
def test_a_head_that_is_wrong_is_asked_now_and_then(step_cost: float, most: int) -> None:
    """Its promises are not kept, so it is soon left alone; one step in sixteen asks again."""
    drafter, head = opened(step_cost)
    session = start(drafter, [3, 1, 4])
    session.observe(told([3, 1, 4], [1], first=0))
    known = [3, 1, 4, 1]
    for number in range(100):
        draft = session.propose(7)
        grown = session._head.grown.tokens
        token = next(t for t in range(number % 29, 40) if t not in draft.tree.tokens and t not in grown)
        session.observe(told(known, [token], draft))
        known.append(token)
    assert len(head.rows_per_pass) < most


@pytest.mark.parametrize(("requests", "most"), [(1, 120), (8, 40)])
def test_a_head_that_never_pays_is_let_go_with_its_states(requests: int, most: int) -> None:
    """Copying states costs a few per cent of each step; in a batch that is given up sooner."""
    drafter, _ = opened(step_cost=0.3)
    session = start(drafter, [3, 1, 4])
    session.observe(told([3, 1, 4], [1], first=0))
    known, steps = [3, 1, 4, 1], 0
    while session.wants_states:
        session.meet(BatchLoad(requests, requests))
        draft = session.propose(7)
        token = next(t for t in range(steps % 29, 40) if t not in draft.tree.tokens)
        session.observe(told(known, [token], draft))
        known.append(token)
        steps += 1
    assert steps <= most
    assert session._head.session is None
    assert drafter.head is not None  # other requests keep theirs
    session.observe(StepObservation((5,), 0))
    session.stop()


def prompt_read(session: AutoSession, length: int) -> None:
    """Let the target read a prompt in pieces and write one token."""
    text = tuple(number * number % 40 for number in range(length + 1))
    for begin in range(0, length - 100, 100):
        piece = HiddenStates(begin, true_states(text, begin, begin + 100))
        session.observe(StepObservation((), 0, states=piece))
    begin = 100 * len(range(0, length - 100, 100))
    session.observe(told(list(text[:-1]), [text[-1]], first=begin))


def test_a_head_that_is_not_asked_does_not_read_the_prompt() -> None:
    """Each 256 tokens of a prompt went through the head as it was read, 4 % of the time of the prompt, also
    where the head was let go without ever being asked.
    """
    drafter, head = opened()
    session = start(drafter, [number * number % 40 for number in range(700)])
    prompt_read(session, 700)
    assert head.rows_per_pass == []
    session.meet(BatchLoad(16, 16))
    session.propose(7)
    session.stop()
    assert head.rows_per_pass == []


def test_states_of_a_long_prompt_are_not_held_back_for_ever() -> None:
    drafter, head = opened()
    session = start(drafter, [number * number % 40 for number in range(1300)])
    prompt_read(session, 1300)
    assert 0 < sum(head.rows_per_pass) <= 1300
    assert session._head._num_held <= MOST_HELD


def test_a_batch_too_full_for_any_draft_asks_nobody_and_lets_the_head_go() -> None:
    """Eight chats ran at 0.93 of plain: half a dozen askings each, none of which could pay, and sixteen steps
    of copied states.
    """
    drafter, head = opened(cost=VerifyCost((1.0, 1.02, 1.05, 1.2, 1.4, 1.6, 1.8, 1.95, 3.5)))
    session = start(drafter, PERIOD * 4)
    session.observe(told(PERIOD * 4, PERIOD[:1], first=0))
    session.meet(BatchLoad(8, 8))
    assert len(session.propose(7)) == 0
    assert session.spent == 0.0
    assert not session.wants_states
    session.observe(StepObservation(tuple(PERIOD[1:]), 0))
    session.meet(BatchLoad())  # the others are done: what was written meanwhile is known
    assert session.propose(7).tree.tokens == tuple(PERIOD[:7])
    assert head.rows_per_pass == []


def test_who_joins_a_full_batch_gets_no_head() -> None:
    """Thirty-two requests computed the beginning of their template once more each, so that heads which
    nobody was going to ask had its states: 1.10 of the time without drafts, and nothing of it was drafting.
    """
    drafter, _ = opened(cost=VerifyCost((1.0, 1.02, 1.05, 1.2, 1.4, 1.6, 1.8, 1.95, 3.5)))
    for num_others, wanted in ((0, True), (1, True), (7, False), (31, False)):
        context = DraftContext("r", tuple(PERIOD * 4), ArgmaxSampler(), num_others=num_others)
        session = drafter.start(context)
        assert session.wants_states is wanted
        assert (session.states_wanted_from(30, num_others + 1) < 30) is wanted, "computed once more for it"
    early = start(drafter, PERIOD * 4)
    assert early.states_wanted_from(30, 32) == 30, "the crowd came before its prompt was read"
    assert not early.wants_states


def test_pieces_of_the_prompt_reach_only_the_head() -> None:
    """They commit nothing, and sources that count replies must not see a step in them."""
    drafter, _ = opened()
    session = start(drafter, PERIOD)
    session.observe(StepObservation((), 0, states=HiddenStates(0, true_states(tuple(PERIOD), 0, 4))))
    session.observe(told(PERIOD, [9], first=4))
    assert session.states_wanted_from(len(PERIOD), 1) == len(PERIOD)  # it is told all before it answers
    assert session._head.session is not None
    assert session._head.session._sequence.is_complete
    assert drafter.capabilities.state_layers == LAYERS


def test_a_failing_head_is_dropped_for_good(caplog: pytest.LogCaptureFixture) -> None:
    drafter, head = opened(fail_at=1)
    running = start(drafter, [3, 1, 4])
    running.observe(told([3, 1, 4], [1], first=0))
    other = start(drafter, [5, 6])
    other.observe(told([5, 6], [7], first=0))
    assert run(running, [3, 1, 4, 1], written([3, 1, 4, 1], 30)) > 0
    head.fail_at = len(head.rows_per_pass)
    run(other, [5, 6, 7], written([5, 6, 7], 10))
    assert drafter.capabilities.state_layers == ()
    assert start(drafter, [1])._head.session is None
    (record,) = caplog.records
    assert "auto goes on with its other sources" in record.getMessage()
    assert head_blocks_free(running, other, head)


def test_drawn_chains_are_refused_where_they_would_do_nothing() -> None:
    """auto took ``sampling="chain"`` for its head, said it drew, and drafted certain trees all the same."""
    with pytest.raises(ConfigError, match="does nothing here"):
        AutoOptions(eagle3=Eagle3Options(sampling="chain"))


def head_blocks_free(one: AutoSession, other: AutoSession, head: FakeHead) -> bool:
    one.stop()
    other.stop()
    return one._head.session is None and other._head.session is None and len(head.pairs) > 0


def test_cheap_sources_rest_where_the_head_alone_is_as_good() -> None:
    """They were judged against plain decoding: what they gave looked like a gain, but the head had it too."""
    drafter, _ = opened()
    dear = AutoDrafter(replace(drafter.options, ask_cost=0.3), drafter.head)
    session = start(dear, [3, 1, 4])
    session.observe(told([3, 1, 4], [1], first=0))
    known, asked = [3, 1, 4, 1], []
    reply = written(known, 300)
    while reply:
        draft = session.propose(7)
        asked.append(session._is_asked)
        kept = min(accept(draft, reply), len(reply) - 1)
        committed, reply = reply[: kept + 1], reply[kept + 1 :]
        session.observe(told(known, committed, draft))
        known += committed
    assert session._alone > 1.5
    assert sum(asked[10:]) < 0.75 * len(asked[10:])
