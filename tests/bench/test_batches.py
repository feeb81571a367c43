"""Answering several conversations at once: who is in which batch, and what is compared with what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from paceline.bench.datasets import BenchPrompt, Message
from paceline.bench.records import Delivery, Measured
from paceline.bench.runner import BenchSettings, batches, count_replies, run_bench
from paceline.errors import ConfigError

PROMPTS = [BenchPrompt(str(i), "chat", ("one", "two") if i == 1 else ("one",)) for i in range(3)]
PROMPTS.append(BenchPrompt("x", "code", ("one",)))


@dataclass
class BatchEngine:
    """A batch of n takes n seconds plain and half with a drafter, whatever is asked."""

    odd_one: str = ""
    asked: list[tuple[str, int, tuple[int | None, ...]]] = field(default_factory=list)
    model_name: str = "fake"

    def start_afresh(self, drafters: Sequence[str]) -> None: ...

    def replies(
        self,
        drafter: str,
        conversations: Sequence[Sequence[Message]],
        max_tokens: int,
        temperature: float,
        seeds: Sequence[int | None],
    ) -> list[Measured]:
        self.asked.append((drafter, len(conversations), tuple(seeds)))
        ids = (9,) * 8 if (drafter, len(conversations) > 1) == (self.odd_one, True) else tuple(range(8))
        seconds = 1.0 if drafter == "none" else 0.5
        delivered = tuple(Delivery(seconds * (i + 1), 1) for i in range(8))
        return [Measured(ids, "said", seconds, 8, 0, 0, 0, (), 0.0, 0.0, delivered)] * len(conversations)


def test_batches_are_of_one_workload_and_full() -> None:
    assert batches(PROMPTS, 1) == [(0,), (1,), (2,), (3,)]
    assert batches(PROMPTS, 2) == [(0, 1), (2, 2), (3, 3)]
    assert batches(PROMPTS, 8) == [(0, 1, 2, 0, 1, 2, 0, 1), (3,) * 8]


def test_a_batch_answers_all_and_then_those_with_a_second_turn() -> None:
    engine = BatchEngine()
    settings = BenchSettings(("ngram",), repeats=1, batch=2, temperature=1.0, seed=5)
    seen: list[object] = []
    results = run_bench(engine, PROMPTS, settings, seen.append)
    assert len(seen) == count_replies(PROMPTS, settings)
    alone = [("none", 1, (seed,)) for seed in (5, 6, 6, 7, 8)]
    assert engine.asked[2 : 2 + 5] == alone, "first, plain decoding of each prompt alone"
    measured = [entry[1:] for entry in engine.asked[2 + 5 :]]
    assert measured[:4] == [(2, (5, 6)), (1, (6,))] * 2, "both drafters, the second turn of prompt 1 alone"
    assert measured[4:] == [(2, (7, 7))] * 2 + [(2, (8, 8))] * 2
    chat = results[1]
    assert (chat.workload, chat.drafter, chat.batch, chat.temperature) == ("chat", "ngram", 2, 1.0)
    assert chat.all_replies.num_replies == 5, "prompt 2 stands twice to fill its batch"
    assert (chat.all_replies.speedup, chat.all_replies.seconds) == (2.0, 2.5)
    assert chat.all_replies.samples.units == (0, 1)
    assert chat.all_replies.samples.replies.tolist() == [[3.0], [2.0]]


@pytest.mark.parametrize("odd_one", ["none", "ngram", ""])
def test_replies_of_a_batch_are_compared_with_plain_ones_alone(odd_one: str) -> None:
    """Two replies that the batch spoils in the same way would look identical to each other."""
    settings = BenchSettings(("ngram",), repeats=2, batch=4, first_turn=True)
    results = run_bench(BatchEngine(odd_one), PROMPTS, settings)
    assert [r.all_replies.identical_share for r in results] == [float(r.drafter != odd_one) for r in results]


def test_unseeded_batches_need_no_reference() -> None:
    engine = BatchEngine()
    settings = BenchSettings(("ngram",), repeats=1, batch=2, temperature=1.0, unseeded=True)
    seen: list[object] = []
    run_bench(engine, PROMPTS, settings, seen.append)
    assert len(seen) == count_replies(PROMPTS, settings)
    assert engine.asked[2] == ("none", 2, (None, None)), "behind the warm-up comes the first batch"


def test_a_batch_out_of_range() -> None:
    for size in (0, 257):
        with pytest.raises(ConfigError, match=f"batch={size}"):
            BenchSettings((), batch=size)
