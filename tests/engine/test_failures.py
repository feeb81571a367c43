"""A drafter that fails costs its request the drafts, never the reply; a forward that fails costs nothing."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from paceline.drafters.scripted import ScriptedDrafter
from paceline.errors import LogitsError
from paceline.records import EMPTY_DRAFT, Draft, TokenLaw
from paceline.sampling.params import SamplingParams
from support.engines import chain_script, make_rig, run_alone, scripted
from support.fake_executor import FakeExecutor

PARAMS = {"temperature": 0.0, "max_tokens": 8, "ignore_eos": True}
PLAIN = run_alone([1, 2], SamplingParams(**PARAMS))


def explode(*_: Any) -> Draft:
    raise RuntimeError("boom")


BAD_SCRIPTS = {
    "raises": explode,
    "too long": lambda known, budget, _: Draft.chain(range(1, budget + 2)),
    "outside the vocabulary": lambda known, budget, _: Draft.chain([12]),
    "negative": lambda known, budget, _: Draft.chain([-1]),
    "impossible law": lambda known, budget, _: Draft.chain(
        [3], [TokenLaw(np.array([4], np.int32), np.array([1.0]))]
    ),
    "no draft": lambda known, budget, _: None,
}


@pytest.mark.parametrize("script", BAD_SCRIPTS.values(), ids=BAD_SCRIPTS)
def test_a_bad_drafter_ends_drafting_with_one_warning(script: Any, caplog: pytest.LogCaptureFixture) -> None:
    drafter = ScriptedDrafter(script)
    rig = make_rig({"scripted": drafter})
    with caplog.at_level(logging.WARNING, logger="paceline.engine"):
        rig.engine.add_request("0", [1, 2], SamplingParams(**PARAMS, drafter="scripted"))
        reply = rig.finish()["0"]
    assert reply.token_ids == PLAIN.token_ids
    assert reply.metrics.num_draft_tokens == 0
    assert len(caplog.records) == 1
    assert "goes on without drafts" in caplog.text
    assert drafter.sessions["0"].num_stops == 1


@pytest.mark.parametrize("moment", ["start", "observe", "stop"])
def test_a_drafter_may_fail_at_any_moment(moment: str, caplog: pytest.LogCaptureFixture) -> None:
    drafter = ScriptedDrafter(chain_script([3, 4]))
    rig = make_rig({"scripted": drafter})
    honest = drafter.start

    def start(context: Any) -> Any:
        if moment == "start":
            raise RuntimeError("boom")
        session = honest(context)
        setattr(session, moment, explode)
        return session

    rig.engine._drafters["scripted"] = _Replaced(drafter, start)
    rig.engine.add_request("0", [1, 2], SamplingParams(**PARAMS, drafter="scripted"))
    assert rig.finish()["0"].token_ids == PLAIN.token_ids
    assert len(caplog.records) == 1


class _Replaced:
    """A drafter with another ``start``."""

    def __init__(self, drafter: ScriptedDrafter, start: Any) -> None:
        self.name, self.capabilities, self.start = drafter.name, drafter.capabilities, start


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_failed_forward_changes_nothing(number: int) -> None:
    drafters = scripted(chain_script([3, 4, 5]))
    rig = make_rig(drafters, executor=FakeExecutor(fail_at=number))
    rig.engine.add_request("0", [1, 2], SamplingParams(**PARAMS, drafter="scripted"))
    rig.engine.add_request("1", [1, 2], SamplingParams(**PARAMS))
    failures = 0
    while rig.engine.has_unfinished:
        try:
            rig.step()
        except RuntimeError:
            failures += 1
            rig.engine.check_integrity()
            # The drafter was not told what became of its draft, so it may not go on.
            assert drafters["scripted"].sessions["0"].num_stops == 1  # type: ignore[attr-defined]
    assert failures == 1
    assert rig.finish()["0"].logit_hashes == rig.done["1"].logit_hashes == PLAIN.logit_hashes


def test_logits_without_a_law_raise_and_can_be_aborted() -> None:
    class Broken(FakeExecutor):
        def forward(self, batch: Any) -> Any:
            return super().forward(batch) * np.float32(np.nan)

    rig = make_rig(executor=Broken())
    rig.engine.add_request("0", [1, 2], SamplingParams(**PARAMS))
    # A model file with flipped bits loads and computes NaN: that is an error of the file, not a bug of ours.
    with pytest.raises(LogitsError, match="NaN"):
        rig.step()
    rig.engine.abort("0")
    rig.engine.check_integrity()
    assert rig.engine.num_free_blocks == rig.executor.num_blocks


def test_a_drafter_observes_every_step_and_all_it_asked_for() -> None:
    drafter = ScriptedDrafter(lambda known, budget, _: EMPTY_DRAFT if len(known) % 2 else Draft.chain([3]))
    drafter.capabilities = type(drafter.capabilities)(can_branch=True, num_top_tokens=3)
    rig = make_rig({"scripted": drafter})
    rig.engine.add_request("0", [1, 2], SamplingParams(**PARAMS, drafter="scripted"))
    reply = rig.finish()["0"]
    steps = drafter.sessions["0"].steps
    assert [token for step in steps for token in step.committed] == list(reply.token_ids)
    assert sum(step.num_accepted_tokens for step in steps) == reply.metrics.num_accepted_tokens
    known = [1, 2]
    for step in steps:
        assert step.verified_tokens is not None
        assert step.top_tokens is not None
        assert step.verified_tokens.tolist() == [known[-1], *step.draft.tree.tokens]
        assert step.top_tokens.shape == (1 + len(step.draft), 3)
        assert step.top_tokens[0, 0] == step.committed[0]
        known.extend(step.committed)
