"""The side-by-side run of the demo, on the fake executor: fair turns and an honest verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.bench.duel import Contender, Verdict, compare, run_duel
from paceline.config import SpecConfig
from paceline.drafters.scripted import ScriptedDrafter
from paceline.engine.outputs import CompletionOutput
from paceline.sampling.params import SamplingParams
from support.engines import make_rig, oracle_script

PARAMS = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


def contenders() -> list[Contender]:
    plain = make_rig()
    fast = make_rig(executor=plain.executor.__class__())
    script = oracle_script(fast.executor)
    drafting = make_rig(
        {"oracle": ScriptedDrafter(script)},
        executor=fast.executor,
        spec=SpecConfig("oracle", num_draft_tokens=3),
    )
    return [Contender("plain", plain.engine), Contender("fast", drafting.engine)]


def finished() -> tuple[list[Contender], list[str]]:
    sides = contenders()
    return sides, [mover.name for mover in run_duel(sides, [1, 2, 3], PARAMS)]


def completion(side: Contender) -> CompletionOutput:
    assert side.completion is not None
    return side.completion


def test_both_sides_finish_and_say_the_same() -> None:
    (plain, fast), moves = finished()
    assert plain.text == fast.text == completion(plain).text
    assert plain.num_tokens == fast.num_tokens == 24
    assert moves.count("plain") == 24
    assert moves.count("fast") < 12, "the oracle drafts three right tokens at a time"
    assert compare(completion(plain), completion(fast)) == Verdict(True, True)


def test_the_side_whose_clock_is_behind_moves_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of two seconds against steps of one: the faster side moves twice as often."""
    sides = contenders()
    clock = [0.0]
    monkeypatch.setattr("paceline.bench.duel.time.perf_counter", lambda: clock[0])
    for side, seconds in zip(sides, (2.0, 1.0), strict=True):
        real = side.engine.step

        def step(real=real, seconds=seconds):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            clock[0] += seconds
            return real()

        monkeypatch.setattr(side.engine, "step", step)
    moves = [mover.name for mover in run_duel(sides, [1, 2, 3], PARAMS)]
    assert moves[:7] == ["plain", "fast", "fast", "plain", "fast", "fast", "plain"]
    assert (sides[0].seconds, sides[1].seconds) == (48.0, float(moves.count("fast")))


def test_the_verdict_sees_a_token_and_a_bit_that_differ() -> None:
    (plain, fast), _ = finished()
    one, two = completion(plain), completion(fast)
    assert two.logit_hashes is not None
    ids = replace(two, token_ids=(*two.token_ids[:-1], 99))
    bits = replace(two, logit_hashes=(*two.logit_hashes[:-1], "0" * 16))
    assert compare(one, ids) == Verdict(False, True)
    assert compare(one, bits) == Verdict(True, False)
    assert not compare(one, bits).identical
    with pytest.raises(ValueError, match="record_logit_hashes"):
        compare(one, replace(two, logit_hashes=None))
