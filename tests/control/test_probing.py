"""A source that costs something rests where it does not pay, and comes back."""

from __future__ import annotations

from paceline.control.probing import Probing


def asked(probing: Probing, gains: list[float]) -> list[bool]:
    due = []
    for gain in gains:
        due.append(probing.is_due())
        if due[-1]:
            probing.learn(gain)
    return due


def test_without_a_gain_it_is_asked_ever_more_rarely() -> None:
    due = asked(Probing(), [-0.02] * 300)
    assert all(due[:5])
    assert sum(due[100:]) <= 200 / 32 + 1
    assert any(due[-33:])


def test_one_gain_ends_the_rest() -> None:
    probing = Probing()
    asked(probing, [-0.02] * 200)
    while not probing.is_due():
        pass
    probing.learn(0.5)
    assert all(asked(probing, [-0.02, 0.3, -0.02, 0.3]))


def test_rare_but_large_gains_keep_it_asked() -> None:
    gains = ([-0.01] * 9 + [0.5]) * 20
    assert sum(asked(Probing(), gains)) > 0.9 * len(gains)
