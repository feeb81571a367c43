"""What a draft head would say at every position of a reply is recorded without drafting anything."""

from __future__ import annotations

import numpy as np
import replay_drafters
from head_traces import HeadRecorder, RecordedHead

from paceline.drafters.base import DraftContext
from paceline.drafters.eagle3 import Eagle3Options
from paceline.records import HiddenStates, StepObservation
from support.draft_play import ArgmaxSampler
from support.fake_executor import FakeExecutor
from support.fake_head import FakeHead, all_ids, head_drafter, true_states

TARGET = FakeExecutor(vocab_size=40)


def test_a_tree_is_kept_for_each_token() -> None:
    """Recording failed at its first prompt once a head's sequence was opened by the head as a whole."""
    head = head_drafter(FakeHead(TARGET, all_ids(TARGET), num_blocks=20), Eagle3Options()).head
    recorder = HeadRecorder(head)
    session = recorder.start(DraftContext("r", (3, 1, 4), ArgmaxSampler()))
    text = [3, 1, 4]
    for token in (1, 5, 9):
        begin = 0 if len(text) == 3 else len(text) - 1
        states = HiddenStates(begin, true_states((*text, token), begin, len(text)))
        text.append(token)
        session.observe(StepObservation((token,), 0, states=states))
        assert len(session.propose(7)) == 0
    session.stop()
    assert sorted(recorder.trees["r"]) == [4, 5, 6]
    assert all(tokens for tokens, _, _ in recorder.trees["r"].values())
    assert head.pool.num_free == 20


def test_a_recorded_head_drafts_for_eagle3_and_auto() -> None:
    reply = tuple(range(4, 20))
    heads = [([token + 1, token + 2, token + 3], [-1, 0, 1], [-0.05, -0.1, -0.15]) for token in reply]
    top = np.zeros((16, 8), np.int32)
    trace = replay_drafters.Trace("new", "greedy", (1, 2, 3), reply, top, head=tuple(heads))
    table = replay_drafters.CONSERVATIVE_COSTS
    for name in ("eagle3", "auto"):
        head = RecordedHead()
        drafter = replay_drafters.built_drafter(name, 40, table, head)
        played = replay_drafters.replay(drafter, [trace], replay_drafters.Rules(table), head)
        ((_, tally),) = played
        assert tally.tokens / tally.steps > 2.0
