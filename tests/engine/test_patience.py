"""A drafter from outside that hangs costs its own request the drafts, and nobody the engine."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from paceline.drafters.base import DraftContext, DrafterCapabilities
from paceline.drafters.scripted import ScriptedDrafter, ScriptedSession
from paceline.engine.patience import PatientSession, open_session
from paceline.errors import DrafterError
from paceline.records import Draft
from paceline.sampling.params import SamplingParams
from support.draft_play import ArgmaxSampler
from support.engines import chain_script, make_rig, oracle_script, run_alone
from support.fake_executor import FakeExecutor

PARAMS = {"temperature": 0.0, "max_tokens": 8, "ignore_eos": True}
CONTEXT = DraftContext("r", (1, 2), ArgmaxSampler())


class Outsider:
    """Follows a script, and hangs in one call until it is let go."""

    name = "outsider"
    capabilities = DrafterCapabilities()

    def __init__(self, script: object, hangs_in: str = "", for_request: str = "") -> None:
        self.inner = ScriptedDrafter(script)  # type: ignore[arg-type]
        self.hangs_in, self.for_request = hangs_in, for_request
        self.let_go = threading.Event()

    def start(self, context: DraftContext) -> ScriptedSession:
        session = self.inner.start(context)
        if self.hangs_in and context.request_id == self.for_request:
            setattr(session, self.hangs_in, lambda *_: self.let_go.wait())
        return session


@pytest.mark.parametrize("moment", ["propose", "observe", "stop"])
def test_only_the_request_whose_drafter_hangs_loses_its_drafts(
    moment: str, caplog: pytest.LogCaptureFixture
) -> None:
    executor = FakeExecutor()
    outsider = Outsider(oracle_script(executor), moment, "stuck")
    rig = make_rig({"outsider": outsider}, executor=executor, draft_timeout=0.3)
    params = SamplingParams(**PARAMS, drafter="outsider")  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, logger="paceline.engine"):
        for name in ("stuck", "fine"):
            rig.engine.add_request(name, [1, 2], params)
        done = rig.finish()
    alone = run_alone([1, 2], SamplingParams(**PARAMS))  # type: ignore[arg-type]
    assert done["stuck"].token_ids == done["fine"].token_ids == alone.token_ids
    assert done["fine"].metrics.num_accepted_tokens > 0
    assert len(caplog.records) == 1
    assert "has not returned for 0.3 s" in caplog.text
    stuck = outsider.inner.sessions["stuck"]
    assert stuck.num_stops == 0
    outsider.let_go.set()
    if moment != "stop":
        give_up = time.monotonic() + 60
        while not stuck.num_stops and time.monotonic() < give_up:
            time.sleep(0.01)
        assert stuck.num_stops == 1


def test_a_call_that_returns_or_raises_in_time_is_as_if_called_directly() -> None:
    session = open_session(Outsider(chain_script([3, 4])), CONTEXT, 60.0)
    assert isinstance(session, PatientSession)
    assert session.propose(2) == Draft.chain([3, 4])
    session.stop()

    def explode(*_: object) -> Draft:
        raise ZeroDivisionError("boom")

    failing = open_session(Outsider(explode), CONTEXT, 60.0)
    with pytest.raises(ZeroDivisionError, match="boom"):
        failing.propose(2)
    failing.stop()


def test_threads_end_with_their_sessions() -> None:
    before = set(threading.enumerate())
    sessions = [open_session(Outsider(chain_script([3])), CONTEXT, 60.0) for _ in range(5)]
    threads = set(threading.enumerate()) - before
    assert len(threads) == 5
    for session in sessions:
        session.stop()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_drafter_that_hangs_at_the_start_is_not_waited_for() -> None:
    outsider = Outsider(chain_script([3]))
    outsider.start = lambda context: outsider.let_go.wait()  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(DrafterError, match="start of drafter 'outsider'"):
        open_session(outsider, CONTEXT, 0.2)
    outsider.let_go.set()


def test_our_own_drafters_are_called_directly() -> None:
    session = open_session(ScriptedDrafter(chain_script([3])), CONTEXT, 1.0)
    assert isinstance(session, ScriptedSession)
    assert not isinstance(open_session(Outsider(chain_script([3])), CONTEXT, None), PatientSession)
