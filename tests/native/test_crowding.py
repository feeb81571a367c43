"""When short passes run on one thread: other programs want the processors, and nobody should wait for them.

With a busy process on each of two cores, passes on two threads took 7 ms, and one in two hundred over 100 ms:
threads that meet at 150 barriers wait for each other's time slices. On one thread the same passes took 4 ms
and at most 14 (benchmarks/busy_cores.py).
"""

from __future__ import annotations

from paceline.native import _core

CALM, CROWDED = (1.0, 0.99), (1.0, 0.5)
"""Seconds that passed and seconds in which the thread ran."""


def _judge(crowding: _core.Crowding, times: int, figures: tuple[float, float]) -> None:
    for _ in range(times):
        crowding.judge(*figures)


def test_calm_passes_keep_all_threads() -> None:
    crowding = _core.Crowding()
    _judge(crowding, 1000, CALM)
    assert not crowding.alone


def test_one_bad_pass_is_forgiven_and_two_in_a_row_are_not() -> None:
    crowding = _core.Crowding()
    for _ in range(10):
        _judge(crowding, 1, CROWDED)
        _judge(crowding, 1, CALM)
    assert not crowding.alone
    _judge(crowding, 2, CROWDED)
    assert crowding.alone


def test_it_stays_alone_while_others_run() -> None:
    crowding = _core.Crowding()
    _judge(crowding, 5000, CROWDED)
    assert crowding.alone


def test_all_threads_come_back_when_the_others_have_gone() -> None:
    crowding = _core.Crowding()
    _judge(crowding, 2, CROWDED)
    _judge(crowding, 15, CALM)
    assert crowding.alone
    _judge(crowding, 1, CALM)
    assert not crowding.alone


def test_trying_again_in_vain_becomes_rare() -> None:
    """A busy process on another core cannot be seen from one thread: each trial costs one slow pass."""
    crowding = _core.Crowding()
    _judge(crowding, 2, CROWDED)
    trials = 0
    for _ in range(2000):
        trials += not crowding.alone
        _judge(crowding, 1, CALM if crowding.alone else CROWDED)
    assert 5 <= trials <= 10
