"""The watch in the loop: what the engine tells it, drifts injected into real drafters, the fallback."""

from __future__ import annotations

import argparse
import inspect
import logging
import random
from collections.abc import Sequence

import numpy as np
import pytest

from paceline.config import SpecConfig
from paceline.control.acceptance_log import judge
from paceline.control.drift import Baseline, DriftOptions
from paceline.control.drift_watch import DriftWatch
from paceline.drafters.eagle3 import Eagle3Options
from paceline.drafters.ngram import NgramDrafter
from paceline.drafters.scripted import ScriptedDrafter
from paceline.errors import ConfigError
from paceline.records import Draft
from paceline.sampling.params import SamplingParams
from support.draft_play import context, play
from support.engines import Rig, make_rig
from support.fake_executor import FakeExecutor, path_logits
from support.fake_head import FakeHead, all_ids, head_drafter

VOCABULARY = 12


def oracle(wrong: Sequence[bool]) -> ScriptedDrafter:
    """Return a head that knows the target and drafts three tokens; while ``wrong[0]``, all of them wrong."""

    def script(known: tuple[int, ...], budget: int, _sampler: object) -> Draft:
        path, drafted = known, []
        for _ in range(min(3, budget)):
            token = int(np.argmax(path_logits(path, VOCABULARY, 2.0)))
            drafted.append((token + 1) % VOCABULARY if wrong[0] else token)
            path = (*path, token)
        return Draft.chain(drafted)

    return ScriptedDrafter(script)


def serve(rig: Rig, number: int, **settings: object) -> None:
    """Answer one prompt of its own to the end; token 0 ends nothing."""
    params = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True, **settings)  # type: ignore[arg-type]
    prompt = [1 + number % 11, 1 + number // 11 % 11, 1 + number // 121 % 11]
    rig.engine.add_request(str(number), prompt, params)
    rig.finish()


def test_the_log_agrees_with_the_metrics_of_the_requests() -> None:
    wrong = [False]
    rig = make_rig({"head": oracle(wrong)}, spec=SpecConfig("head"))
    for number in range(6):
        wrong[0] = number % 3 == 2
        serve(rig, number, workload="a" if number % 2 else None)
    metrics = [done.metrics for done in rig.done.values()]
    log = rig.engine.watch.log
    totals = [series.total for series in log.series()]
    assert {series.workload for series in log.series()} == {"a", None}
    assert {series.drafter for series in log.series()} == {"head"}
    assert sum(total.num_accepted for total in totals) == sum(m.num_accepted_tokens for m in metrics)
    assert sum(total.num_draft_tokens for total in totals) == sum(m.num_draft_tokens for m in metrics)
    assert sum(total.num_drafts for total in totals) == sum(m.num_drafts for m in metrics)


def test_a_perturbed_head_is_caught_and_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """Within 64 output tokens, because it was right every time; the text is that of plain decoding."""
    wrong = [False]
    options = DriftOptions(baseline={"head": Baseline((900, 900, 900), (1000, 900, 900))}, fallback="none")
    rig = make_rig({"head": oracle(wrong)}, spec=SpecConfig("head"))
    rig.engine.watch = DriftWatch(options)
    for number in range(4):
        serve(rig, number)
    assert rig.engine.watch.num_alarms == 0
    wrong[0] = True
    with caplog.at_level(logging.WARNING, "paceline.drift"):
        for number in range(4, 8):
            serve(rig, number)
    (alarm,) = rig.engine.watch.alarms
    assert alarm.num_tokens <= 64
    assert len(caplog.records) == 1 and "new requests use 'none'" in caplog.text
    assert rig.done["7"].metrics.num_drafts == 0, "the last request ran on the fallback"
    plain = make_rig()
    for number in range(8):
        serve(plain, number)
        assert plain.done[str(number)].token_ids == rig.done[str(number)].token_ids


def test_a_request_that_names_its_drafter_keeps_it() -> None:
    wrong = [True]
    options = DriftOptions(baseline={"head": Baseline((900,), (1000,))}, fallback="none")
    rig = make_rig({"head": oracle(wrong)}, spec=SpecConfig("head"))
    rig.engine.watch = DriftWatch(options)
    for number in range(4):
        serve(rig, number)
    assert rig.engine.watch.num_alarms == 1
    serve(rig, 4, drafter="head")
    assert rig.done["4"].metrics.num_drafts > 0


def test_an_eagle3_head_whose_weights_are_perturbed_is_caught() -> None:
    """The drafter eagle3 on a head that is mostly right, until its output matrix has the wrong sign.

    It soon drafts less then, which is its own defence, and is asked again now and then: within 200 tokens.
    """
    target = FakeExecutor()
    head = FakeHead(target, all_ids(target))
    drafter = head_drafter(head, Eagle3Options(width=1))
    watch = DriftWatch(DriftOptions(baseline={"eagle3": Baseline((1200, 700), (2000, 1200))}))
    rig = make_rig({"eagle3": drafter}, executor=target, spec=SpecConfig("eagle3"))
    rig.engine.watch = watch
    for number in range(3):
        serve(rig, number)
    assert watch.num_alarms == 0
    right = head.logits
    head.logits = lambda seen: -right(seen)  # type: ignore[method-assign]
    tokens = 0
    while not watch.num_alarms and tokens < 2000:
        tokens += 32
        serve(rig, 100 + tokens)
    assert watch.num_alarms == 1 and tokens <= 200


def test_prompts_that_switch_from_code_to_random_text_are_caught() -> None:
    """ngram on Python source (bytes as tokens), then on letters drawn at random.

    Within 1,200 tokens of steps that drafted; most steps on random letters find no match and draft nothing.
    """
    watch = DriftWatch(DriftOptions(learn_positions=1500))
    source = inspect.getsource(argparse).encode()
    pieces = [source[at : at + 256] for at in range(0, 256 * 120, 256)]
    for number, piece in enumerate(pieces):
        _replay(watch, str(number), piece)
    assert watch._watched["ngram", None].fall is not None, "the baseline is learnt"
    assert watch.num_alarms == 0
    draw, tokens = random.Random(5), 0
    while not watch.num_alarms and tokens < 8000:
        tokens += 192
        _replay(watch, f"random {tokens}", bytes(draw.choices(range(97, 123), k=256)))
    assert watch.num_alarms == 1 and watch.alarms[0].num_tokens <= 1200


def _replay(watch: DriftWatch, request_id: str, text: bytes) -> None:
    """Tell the watch what ngram drafts in the last 192 bytes of a text, and what of it is right."""
    prompt, reply = list(text[:64]), list(text[64:])
    session = NgramDrafter().start(context(prompt))
    for step in play(session, prompt, reply, 7):
        if len(step.draft):
            path = tuple(range(step.accepted))
            judged = judge(step.draft.tree, path, len(step.committed))
            watch.record(
                "ngram",
                None,
                request_id,
                judged,
                num_draft_tokens=len(step.draft),
                num_tokens=len(step.committed),
            )


@pytest.mark.parametrize("label", ["", "x" * 65, "two\nlines", 3])
def test_labels_are_short_printable_text(label: object) -> None:
    with pytest.raises(ConfigError, match="workload="):
        SamplingParams(workload=label)  # type: ignore[arg-type]
