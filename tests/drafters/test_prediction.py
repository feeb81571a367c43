"""Predicted text: followed while it holds, found again after a divergence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.drafters.prediction import PredictionDrafter, PredictionOptions
from paceline.errors import ConfigError
from paceline.records import Draft, StepObservation
from support.draft_play import PlayedStep, context, play

TEXT = list(range(100, 160))
TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def run(prediction: list[int], reply: list[int], budget: int = 7) -> list[PlayedStep]:
    session = PredictionDrafter().start(context([1], prediction))
    return play(session, [1], reply, budget)


def test_a_right_prediction_is_taken_whole() -> None:
    steps = run(TEXT, TEXT)
    assert len(steps) == 8  # 59 tokens after the first, 7 drafted + 1 bonus each
    assert all(step.accepted == len(step.draft) for step in steps[:-1])


@pytest.mark.parametrize(
    "reply",
    [
        [*TEXT[:20], 7, *TEXT[21:]],  # one token replaced
        [*TEXT[:20], 7, 8, 9, *TEXT[20:]],  # three inserted
        [*TEXT[:20], *TEXT[26:]],  # six left out
        [7, 8, 9, 10, *TEXT],  # a preamble
        [*TEXT[:20], 7, 8, *TEXT[21:40], 9, *TEXT[42:]],  # two edits
    ],
    ids=["replaced", "inserted", "deleted", "preamble", "two edits"],
)
def test_it_realigns_after_an_edit(reply: list[int]) -> None:
    edits = 12  # steps that re-aligning may cost on top of the undisturbed ones
    assert len(run(TEXT, reply)) <= len(reply) / 8 + edits


def test_the_longest_run_wins_over_the_nearest() -> None:
    # After the divergence the reply says 1 2 3; the prediction has a near "9 2 3 50" and a far "1 2 3 60".
    prediction = [10, 11, 9, 2, 3, 50, 51, 1, 2, 3, 60, 61]
    session = PredictionDrafter().start(context([0], prediction))
    session.observe(StepObservation((10, 99, 1, 2, 3), 0))
    assert session.propose(1) == Draft.chain([60])


def test_what_lies_behind_is_not_gone_back_to() -> None:
    prediction = [1, 2, 3, 4, 5, 6, 1, 2, 70]
    session = PredictionDrafter().start(context([0], prediction))
    session.observe(StepObservation((1, 2, 3, 4, 5, 6, 99, 1, 2), 0))
    assert session.propose(1) == Draft.chain([70])


def test_silent_without_a_prediction_and_past_its_end() -> None:
    session = PredictionDrafter().start(context([1]))
    session.observe(StepObservation((5,), 0))
    assert len(session.propose(5)) == 0
    session = PredictionDrafter().start(context([1], [7, 8]))
    session.observe(StepObservation((7, 8), 0))
    assert len(session.propose(5)) == 0


def test_a_wrong_prediction_falls_silent() -> None:
    steps = run(TEXT, list(range(500, 560)))
    assert sum(len(step.draft) for step in steps[-20:]) <= 20


@given(prediction=TOKENS, reply=TOKENS, budget=st.integers(0, 9))
def test_drafts_fit_the_budget_and_the_cursor_the_text(
    prediction: list[int], reply: list[int], budget: int
) -> None:
    session = PredictionDrafter().start(context([1], prediction))
    play(session, [1], reply, budget)
    assert session.cursor >= 0
    assert len(session._history) <= PredictionOptions().max_match


@pytest.mark.parametrize("values", [{"max_match": 0}, {"settled_after": 0}, {"min_probability": -0.1}])
def test_options_out_of_range_are_named(values: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"prediction: {next(iter(values))}"):
        PredictionOptions(**values)  # type: ignore[arg-type]
