"""The bench itself, measured on an engine whose every figure is known beforehand."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from paceline.bench.datasets import BenchPrompt, Message
from paceline.bench.environment import Environment, describe_environment
from paceline.bench.records import Measured, Reply, distinct_share, summarize
from paceline.bench.report import as_json, result_tables
from paceline.bench.runner import BenchSettings, count_replies, run_bench
from paceline.errors import ConfigError, PromptError

LOOP = (1, 2, 3, 4) * 5
VARIED = tuple(range(20))
PROMPTS = [
    BenchPrompt("a", "chat", ("vary", "vary")),
    BenchPrompt("b", "chat", ("loop",)),
    BenchPrompt("c", "code", ("loop",)),
]


@dataclass
class FakeEngine:
    """Answers ``loop`` with a loop and ``vary`` without; each drafter has a fixed speed; notes every call."""

    seconds: dict[str, float]
    differs: str = ""
    calls: list[tuple[str, str, int]] = field(default_factory=list)
    model_name: str = "fake"

    def start_afresh(self, drafters: Sequence[str]) -> None:
        self.calls.append(("afresh", " ".join(drafters), 0))

    def reply(
        self, drafter: str, messages: Sequence[Message], max_tokens: int, temperature: float, seed: int
    ) -> Measured:
        self.calls.append((drafter, " ".join(m["content"] for m in messages), seed))
        ids = LOOP if messages[-1]["content"] == "loop" else VARIED
        if drafter == self.differs:
            ids = (99, *ids[1:])
        drafting = drafter != "none"
        return Measured(
            token_ids=ids,
            text="said",
            seconds=self.seconds[drafter],
            num_steps=10 if drafting else 20,
            num_drafts=8 if drafting else 0,
            num_draft_tokens=20 if drafting else 0,
            num_accepted_tokens=10 if drafting else 0,
            accepted_at=(8, 2) if drafting else (),
            draft_seconds=0.1 if drafting else 0.0,
            verify_seconds=0.3,
        )


SETTINGS = BenchSettings(("ngram", "none", "ngram"), repeats=2)


def test_drafters_take_turns_and_the_first_round_is_not_counted() -> None:
    engine = FakeEngine({"none": 2.0, "ngram": 1.0})
    seen: list[Reply | None] = []
    run_bench(engine, PROMPTS, SETTINGS, seen.append)
    assert SETTINGS.lineup == ("none", "ngram")
    assert len(seen) == count_replies(PROMPTS, SETTINGS) == 2 + 2 * 2 * 4
    assert seen[:2] == [None, None]
    order = [call[0] for call in engine.calls]
    assert order[:3] == ["afresh", "none", "ngram"]
    assert [i for i, name in enumerate(order) if name == "afresh"] == [0, 3, 12], "before each repeat"
    assert engine.calls[3] == ("afresh", "none ngram", 0)
    assert order[4:12] == ["none", "none", "ngram", "ngram", "ngram", "none", "none", "ngram"]
    assert order[13:] == ["ngram", "ngram", "none", "none", "none", "ngram", "ngram", "none"]


def test_a_conversation_keeps_its_replies_and_its_seed() -> None:
    engine = FakeEngine({"none": 2.0})
    run_bench(engine, PROMPTS, BenchSettings((), repeats=1, temperature=1.0, seed=7))
    asked = [call[1:] for call in engine.calls[3:]]
    assert asked == [("vary", 7), ("vary said vary", 7), ("loop", 8), ("loop", 9)]


def test_a_prompt_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine({"none": 2.0})
    real = engine.reply

    def reply(drafter: str, messages: Sequence[Message], *rest: Any) -> Measured:
        if len(messages) > 1:
            raise PromptError("9000 tokens do not fit")
        return real(drafter, messages, *rest)

    monkeypatch.setattr(engine, "reply", reply)
    with pytest.raises(PromptError, match="chat prompt a, turn 2: 9000 tokens do not fit"):
        run_bench(engine, PROMPTS, BenchSettings(()))


def test_figures_of_all_and_of_varied_replies() -> None:
    engine = FakeEngine({"none": 2.0, "ngram": 1.0})
    none, ngram, code_none, code_ngram = run_bench(engine, PROMPTS, SETTINGS)
    assert (ngram.workload, ngram.drafter, ngram.model) == ("chat", "ngram", "fake")
    chat = ngram.all_replies
    assert (chat.num_replies, chat.tokens, chat.seconds) == (3, 60, 3.0)
    assert chat.tokens_per_s == 20.0
    assert chat.tokens_per_s_spread == (20.0, 20.0)
    assert chat.speedup == 2.0
    assert chat.tokens_per_step == 2.0
    assert chat.acceptance_rate == 0.5
    assert chat.acceptance_rate_at == (1.0, 0.25)
    assert chat.identical_share == 1.0
    assert chat.distinct_4gram_share == pytest.approx((1 + 1 + 4 / 17) / 3)
    assert (chat.draft_seconds, chat.verify_seconds) == pytest.approx((0.3, 0.9))
    assert chat.other_seconds == pytest.approx(1.8)
    assert none.all_replies.speedup == 1.0
    assert none.all_replies.acceptance_rate is None
    assert ngram.varied_replies is not None
    assert (ngram.varied_replies.num_replies, ngram.varied_replies.distinct_4gram_share) == (2, 1.0)
    assert code_none.varied_replies is code_ngram.varied_replies is None, "its only reply is a loop"


def test_a_reply_that_differs_lowers_the_identical_share() -> None:
    engine = FakeEngine({"none": 2.0, "ngram": 1.0}, differs="ngram")
    results = run_bench(engine, PROMPTS, SETTINGS)
    assert [result.all_replies.identical_share for result in results] == [1.0, 0.0, 1.0, 0.0]


def test_speedup_is_the_median_over_repeats_of_whole_runs() -> None:
    """One repeat disturbed on one side must not move the figure."""

    def reply(drafter: str, repeat: int, seconds: float) -> Reply:
        measured = Measured(VARIED, "", seconds, 20, 0, 0, 0, (), 0.0, 0.0)
        return Reply("chat", "a", 0, repeat, drafter, measured)

    plain = [reply("none", i, s) for i, s in enumerate((2.0, 2.0, 2.0))]
    fast = [reply("ngram", i, s) for i, s in enumerate((1.0, 8.0, 1.0))]
    summary = summarize(fast, plain)
    assert (summary.speedup, summary.tokens_per_s) == (2.0, 20.0)
    assert summary.tokens_per_s_spread == (2.5, 20.0)
    with pytest.raises(ValueError, match="same prompts and repeats"):
        summarize(fast, plain[:2])
    with pytest.raises(ValueError, match="same prompts and repeats"):
        summarize([], [])


def test_distinct_share() -> None:
    assert distinct_share([]) == distinct_share([1, 1, 1]) == 1.0
    assert distinct_share([1] * 13) == 0.1
    assert distinct_share(VARIED) == 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"repeats": 0}, "repeat=0"),
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_settings_out_of_range(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BenchSettings((), **settings)  # type: ignore[arg-type]


ENVIRONMENT = Environment("abc", "a cpu", 2, 2, "avx2", "Linux", "3.11", {"numpy": "2"})


def test_the_json_holds_what_the_documentation_promises() -> None:
    results = run_bench(FakeEngine({"none": 2.0, "ngram": 1.0}), PROMPTS, SETTINGS)
    data = json.loads(json.dumps(as_json(results, SETTINGS, ENVIRONMENT)))
    assert len(data["runs"]) == 4
    promised = (
        "workload drafter model tokens seconds tokens_per_s tokens_per_step acceptance_rate "
        "acceptance_rate_at identical_share distinct_4gram_share speedup draft_seconds "
        "verify_seconds other_seconds varied"
    )
    for run in data["runs"]:
        assert set(promised.split()) <= set(run)
    assert data["runs"][1]["varied"]["speedup"] == 2.0
    assert data["runs"][3]["varied"] is None
    assert data["environment"] == {
        "commit": "abc",
        "cpu": "a cpu",
        "cores": 2,
        "threads": 2,
        "instruction_path": "avx2",
        "system": "Linux",
        "python": "3.11",
        "versions": {"numpy": "2"},
    }


def test_each_speed_is_printed_beside_its_share_of_distinct_4grams() -> None:
    """Once for all replies and once for the varied ones; without varied ones, no such line."""
    from rich.console import Console

    output = io.StringIO()
    console = Console(width=110, file=output)
    for table in result_tables(run_bench(FakeEngine({"none": 2.0, "ngram": 1.0}), PROMPTS, SETTINGS)):
        console.print(table)
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.getvalue().splitlines()]
    rows = [cells for cells in lines if len(cells) == 10 and cells[1].startswith(("all", "varied"))]
    assert [row[:6] for row in rows] == [
        ["none", "all 3", "10.0", "10.0–10.0", "1.00x", "75%"],
        ["", "varied 2", "10.0", "10.0–10.0", "1.00x", "100%"],
        ["ngram", "all 3", "20.0", "20.0–20.0", "2.00x", "75%"],
        ["", "varied 2", "20.0", "20.0–20.0", "2.00x", "100%"],
        ["none", "all 1", "10.0", "10.0–10.0", "1.00x", "24%"],
        ["ngram", "all 1", "20.0", "20.0–20.0", "2.00x", "24%"],
    ]
    assert rows[2][6:] == ["2.00", "50%", "100%", "10·30·60 %"]


def test_the_environment_names_this_machine() -> None:
    found = describe_environment(threads=2, instruction_path="avx2")
    assert found.cores >= 1
    assert found.cpu
    assert "numpy" in found.versions
