"""Which difference is a bug, which is a tie, and which says nothing."""

from __future__ import annotations

from paceline.check.differences import Difference, first_difference, kind_of


def test_where_two_replies_part() -> None:
    assert first_difference((1, 2, 3), (1, 2, 3)) is None
    assert first_difference((1, 2, 3), (1, 5, 3)) == 1
    assert first_difference((1, 2), (1, 2, 3)) == 2
    assert first_difference("abc", "") == 0


def test_without_noise_every_difference_is_a_bug() -> None:
    assert kind_of(3, None, 0.0, 0.0) == "bug"
    assert kind_of(3, None, 1e-9, 0.0) == "bug"


def test_a_gap_within_twice_the_noise_is_a_tie() -> None:
    """Either logit can be off by the noise, so both together by twice as much."""
    assert kind_of(3, None, 0.019, 0.01) == "tie"
    assert kind_of(3, None, 0.021, 0.01) == "bug"


def test_an_unknown_gap_excuses_nothing() -> None:
    assert kind_of(3, None, None, 0.01) == "bug"


def test_a_baseline_that_differs_earlier_says_nothing() -> None:
    assert kind_of(3, 3, 5.0, 0.0) == "baseline"
    assert kind_of(3, 4, 5.0, 0.0) == "bug"


def test_labels() -> None:
    assert Difference("bug", 1).of("p", "suffix") == Difference("bug", 1, prompt="p", subject="suffix")
