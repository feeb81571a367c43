"""The report on a request's drafts: one line a step, runs of silence folded, sums that add up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.cli.explain import report_lines
from paceline.control.decisions import Candidates, Decision, StepRecord
from paceline.control.summary import summarise
from paceline.records import ALONE, BatchLoad, Surcharge

PAYS = Decision(
    (Candidates("suffix", 7, 2.5), Candidates("eagle3", 5, 1.25)), 4, 2.25, 1.75, spent=0.15, reason="pays"
)
REST = Decision((), 0, 0.0, 1.0, spent=0.0, reason="resting")


def step(
    position: int, drafted: int, accepted: int, cost: float, decision: Decision | None, refused: int = 0
) -> StepRecord:
    budget = 0 if refused else 7
    return StepRecord(position, ALONE, budget, refused, drafted, accepted, accepted + 1, cost, decision)


RECORDS = [
    step(0, 4, 3, 0.55, PAYS),
    step(4, 0, 0, 0.0, REST),
    step(5, 0, 0, 0.0, None, refused=7),
    step(6, 4, 0, 0.55, PAYS),
]


def test_sums_and_break_even() -> None:
    total = summarise(RECORDS)
    assert (total.num_steps, total.num_drafts, total.num_drafted, total.num_accepted) == (4, 2, 8, 3)
    assert total.draft_cost == pytest.approx(1.1)
    assert total.lost == pytest.approx(0.55)
    assert total.gain == pytest.approx(3 - 1.1)
    assert total.break_even_rate == pytest.approx(1.1 / 8)
    assert total.modelled_speedup == pytest.approx(7 / 5.1)
    assert dict(total.reasons) == {"pays": 2, "resting": 1, "guarded": 1}
    # At the break-even rate nothing would have been gained.
    assert total.break_even_rate * total.num_drafted == pytest.approx(total.draft_cost)


def test_each_draft_has_a_line_and_silence_is_folded() -> None:
    lines = list(report_lines(RECORDS, row_seconds=0.003))
    assert len(lines) == 1 + 3 + 3
    assert "suffix 7: 2.5, eagle3 5: 1.2" in lines[1]
    assert "+2.45" in lines[1]
    assert "2 steps without a draft" in lines[2]
    assert lines[2].endswith("resting, guarded")
    assert "38% of 8 drafted tokens, break-even 14%: drafting paid" in lines[-2]
    assert "about 2 ms" in lines[-1]


def test_a_run_without_drafts_says_so() -> None:
    lines = list(report_lines([step(0, 0, 0, 0.0, None)], row_seconds=0.003))
    assert lines[-1].startswith("nothing was drafted")
    assert list(report_lines([], row_seconds=0.003))[-1].startswith("nothing was drafted")


def test_reasons_of_drafters_that_keep_no_record() -> None:
    assert step(0, 3, 1, 0.2, None).reason == "asked by name"
    assert step(0, 0, 0, 0.0, None).reason == "no candidates"
    assert StepRecord(0, BatchLoad(), 0, 0, 0, 0, 1, 0.0).reason == "no budget"


def test_drafts_that_could_not_have_paid_are_called_so() -> None:
    """It said "acceptance 100%, break-even 107%: drafting did not pay": a rate that no draft can reach."""
    lines = list(report_lines([step(0, 1, 1, 1.07, PAYS)], row_seconds=0.003))
    assert (
        "acceptance 100% of 1 drafted tokens, which cost 1.07 plain tokens each: no acceptance" in lines[-2]
    )
    assert "break-even" not in lines[-2]


def test_what_the_clock_added_is_told() -> None:
    heard = replace(step(0, 1, 1, 0.8, PAYS), load=BatchLoad(surcharge=Surcharge(0.15, 1.3)))
    assert list(report_lines([heard], row_seconds=0.003))[-1].startswith(
        "by the clock, drafts cost 1.3 times what the profile says and 0.15 plain tokens for each asking"
    )
    assert not any("clock" in line for line in report_lines(RECORDS, row_seconds=0.003))
