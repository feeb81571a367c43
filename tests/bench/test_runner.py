"""The bench itself, measured on an engine whose every figure is known beforehand."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from paceline.bench.datasets import BenchPrompt, Message
from paceline.bench.environment import Environment, describe_environment
from paceline.bench.means import Mean, mean_over_workloads
from paceline.bench.records import Delivery, Measured, Reply, distinct_share
from paceline.bench.report import RunFacts, as_json, result_tables
from paceline.bench.runner import BenchSettings, count_replies, run_bench
from paceline.bench.summary import Conditions, summarize, summarize_run
from paceline.bench.tables import mean_table
from paceline.errors import ConfigError, PromptError

LOOP = (1, 2, 3, 4) * 5
VARIED = tuple(range(20))
PLAIN = tuple(Delivery(0.5 + 0.1 * i, 1) for i in range(20))
DRAFTED = (Delivery(0.5, 1), *(Delivery(0.6 + 0.1 * i, 2) for i in range(9)), Delivery(1.5, 1))
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
    calls: list[tuple[str, str, int | None]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    model_name: str = "fake"

    def start_afresh(self, drafters: Sequence[str]) -> None:
        self.calls.append(("afresh", " ".join(drafters), 0))

    def replies(
        self,
        drafter: str,
        conversations: Sequence[Sequence[Message]],
        max_tokens: int,
        temperature: float,
        seeds: Sequence[int | None],
    ) -> list[Measured]:
        self.sizes.append(len(conversations))
        return [self.reply(drafter, *each) for each in zip(conversations, seeds, strict=True)]

    def reply(self, drafter: str, messages: Sequence[Message], seed: int | None) -> Measured:
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
            deliveries=DRAFTED if drafting else PLAIN,
            drafts_at=(8, 8, 4) if drafting else (),
            peak_memory_bytes=2_000_000 if drafting else 1_000_000,
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


def test_the_first_turn_alone() -> None:
    engine = FakeEngine({"none": 2.0})
    settings = BenchSettings((), repeats=1, first_turn=True)
    seen: list[Reply | None] = []
    (chat, _) = run_bench(engine, PROMPTS, settings, seen.append)
    assert [call[1] for call in engine.calls[3:]] == ["vary", "loop", "loop"]
    assert chat.all_replies.num_replies == 2
    assert len(seen) == count_replies(PROMPTS, settings) == 4


def test_prompts_may_share_an_id() -> None:
    """Replies were told apart by workload and id, and a file whose ids repeat failed after its last reply."""
    prompts = [BenchPrompt("1", "chat", ("vary",)), BenchPrompt("1", "chat", ("loop",))]
    none, ngram = run_bench(FakeEngine({"none": 2.0, "ngram": 1.0}), prompts, SETTINGS)
    assert (ngram.all_replies.num_replies, ngram.all_replies.speedup) == (2, 2.0)
    assert ngram.varied_replies is not None
    assert ngram.varied_replies.num_replies == 1
    assert none.all_replies.identical_share == 1.0


def test_a_prompt_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine({"none": 2.0})
    real = engine.replies

    def replies(drafter: str, conversations: Sequence[Sequence[Message]], *rest: Any) -> list[Measured]:
        if len(conversations[0]) > 1:
            raise PromptError("9000 tokens do not fit")
        return real(drafter, conversations, *rest)

    monkeypatch.setattr(engine, "replies", replies)
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
        return Reply(0, PROMPTS[0], 0, repeat, drafter, measured)

    plain = [reply("none", i, s) for i, s in enumerate((2.0, 2.0, 2.0))]
    fast = [reply("ngram", i, s) for i, s in enumerate((1.0, 8.0, 1.0))]
    summary = summarize(fast, plain)
    assert (summary.speedup, summary.tokens_per_s) == (2.0, 20.0)
    assert summary.tokens_per_s_spread == (2.5, 20.0)
    with pytest.raises(ValueError, match="same prompts and repeats"):
        summarize(fast, plain[:2])
    with pytest.raises(ValueError, match="same prompts and repeats"):
        summarize([], [])


def test_a_workload_of_several_categories_tells_them_apart() -> None:
    prompts = [
        BenchPrompt("1", "mt-bench", ("vary",), part="writing"),
        BenchPrompt("2", "mt-bench", ("loop",), part="math"),
        BenchPrompt("3", "mt-bench", ("vary",), part="math"),
        BenchPrompt("4", "qa", ("vary",)),
    ]
    results = run_bench(FakeEngine({"none": 2.0, "ngram": 1.0}), prompts, SETTINGS)
    assert [(r.workload, r.all_replies.num_replies) for r in results[1::2]] == [("mt-bench", 3), ("qa", 1)]
    parts = results[1].categories
    assert {name: summary.num_replies for name, summary in parts.items()} == {"writing": 1, "math": 2}
    assert parts["math"].distinct_4gram_share == pytest.approx((1 + 4 / 17) / 2)
    assert results[3].categories == {}


def test_the_mean_counts_each_workload_the_same() -> None:
    engine = FakeEngine({"none": 2.0, "ngram": 1.0})
    results = run_bench(engine, PROMPTS, SETTINGS)
    slow = replace(results[3].all_replies, speedup=0.5, tokens_per_step=1.0)
    results[3] = replace(results[3], all_replies=slow)
    none, ngram = mean_over_workloads(results)
    assert (none.drafter, none.all_replies.speedup, none.all_replies.min_speedup) == ("none", 1.0, 1.0)
    assert ngram.all_replies == Mean(2, 1.5, 1.25, 0.5, "code")
    assert ngram.varied_replies == Mean(1, 2.0, 2.0, 2.0, "chat"), "code has no varied reply"
    (loops,) = mean_over_workloads(results[3:])
    assert loops.varied_replies is None


UNSEEDED = Conditions(temperature=1.0, unseeded=True)


def unseeded(number: int, repeat: int, drafter: str, ids: tuple[int, ...], seconds: float) -> Reply:
    measured = Measured(ids, "", seconds, len(ids), 0, 0, 0, (), 0.0, 0.0)
    return Reply(number, PROMPTS[number], 0, repeat, drafter, measured)


def test_unseeded_replies_are_compared_per_token() -> None:
    """The drafter's replies are twice as long in the same time: by wall time it would gain nothing."""
    replies = [unseeded(0, r, "none", VARIED, 2.0) for r in range(2)]
    replies += [unseeded(0, r, "ngram", VARIED * 2, 2.0) for r in range(2)]
    result = summarize_run("chat", "ngram", "fake", replies, UNSEEDED)
    assert result.all_replies.speedup == 2.0
    assert result.all_replies.identical_share is None
    assert summarize_run("chat", "none", "fake", replies, UNSEEDED).all_replies.speedup == 1.0


def test_unseeded_replies_are_varied_or_not_each_by_itself() -> None:
    replies = [
        unseeded(0, 0, "none", LOOP, 1.0),
        unseeded(1, 0, "none", VARIED, 4.0),
        unseeded(0, 0, "ngram", VARIED, 2.0),
        unseeded(1, 0, "ngram", LOOP, 1.0),
        # A repeat whose replies of one side all loop compares nothing.
        unseeded(0, 1, "none", LOOP, 1.0),
        unseeded(1, 1, "none", LOOP, 1.0),
        unseeded(0, 1, "ngram", VARIED, 1.0),
        unseeded(1, 1, "ngram", VARIED, 1.0),
    ]
    result = summarize_run("chat", "ngram", "fake", replies, UNSEEDED)
    assert result.varied_replies is not None
    assert (result.varied_replies.num_replies, result.varied_replies.tokens) == (1, 20)
    assert result.varied_replies.distinct_4gram_share == 1.0
    assert result.varied_replies.speedup == 2.0
    second = summarize_run("chat", "ngram", "fake", replies[4:], UNSEEDED)
    assert second.varied_replies is None
    with pytest.raises(ValueError, match="same repeats"):
        summarize(replies[2:4], replies[4:6], UNSEEDED)


def test_an_unseeded_run_hands_out_no_seed() -> None:
    engine = FakeEngine({"none": 2.0, "ngram": 1.0}, differs="ngram")
    settings = BenchSettings(("ngram",), repeats=1, temperature=1.0, unseeded=True)
    results = run_bench(engine, PROMPTS, settings)
    assert {call[2] for call in engine.calls if call[0] != "afresh"} == {None}
    assert [result.all_replies.identical_share for result in results] == [None] * 4
    assert [result.all_replies.speedup for result in results] == [1.0, 2.0, 1.0, 2.0]


def test_unseeded_text_that_is_identical_has_the_speedup_of_seeded_text() -> None:
    engine = FakeEngine({"none": 3.0, "ngram": 0.7})
    seeded, fresh = (
        run_bench(engine, PROMPTS, BenchSettings(("ngram",), temperature=1.0, unseeded=flag))
        for flag in (False, True)
    )
    for one, other in zip(seeded, fresh, strict=True):
        assert one.all_replies.speedup == pytest.approx(other.all_replies.speedup, rel=1e-12)


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
        ({"unseeded": True}, "unseeded=True does nothing at temperature=0"),
        ({"unseeded": True, "temperature": 1.0, "seed": 3}, "seed=3 does nothing with unseeded=True"),
    ],
)
def test_settings_out_of_range(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BenchSettings((), **settings)  # type: ignore[arg-type]


ENVIRONMENT = Environment("abc", "a cpu", 2, 2, "avx2", "Linux", "3.11", {"numpy": "2"})


def test_the_json_holds_what_the_documentation_promises() -> None:
    results = run_bench(FakeEngine({"none": 2.0, "ngram": 1.0}), PROMPTS, SETTINGS)
    data = json.loads(json.dumps(as_json(results, [SETTINGS], RunFacts(ENVIRONMENT))))
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
    assert data["runs"][0]["categories"] == {}
    assert data["mean_over_workloads"][1] == {
        "drafter": "ngram",
        "model": "fake",
        "batch": 1,
        "temperature": 0.0,
        "num_workloads": 2,
        "tokens_per_step": 2.0,
        "speedup": 2.0,
        "min_speedup": 2.0,
        "slowest_workload": "chat",
        "varied": {
            "num_workloads": 1,
            "tokens_per_step": 2.0,
            "speedup": 2.0,
            "min_speedup": 2.0,
            "slowest_workload": "chat",
        },
    }
    assert data["settings"]["first_turn"] is data["settings"]["unseeded"] is False
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
    tables = result_tables(run_bench(FakeEngine({"none": 2.0, "ngram": 1.0}), PROMPTS, SETTINGS))
    rows = [cells for cells in printed(*tables) if len(cells) == 12]
    assert [row[:6] for row in rows] == [
        ["none", "all 3", "10.0", "10.0–10.0", "1.00x", "75%"],
        ["", "varied 2", "10.0", "10.0–10.0", "1.00x", "100%"],
        ["ngram", "all 3", "20.0", "20.0–20.0", "2.00x", "75%"],
        ["", "varied 2", "20.0", "20.0–20.0", "2.00x", "100%"],
        ["none", "all 1", "10.0", "10.0–10.0", "1.00x", "24%"],
        ["ngram", "all 1", "20.0", "20.0–20.0", "2.00x", "24%"],
    ]
    assert rows[2][6:8] == ["2.00–2.00", "–"]
    assert rows[2][8:] == ["2.00", "50%", "100%", "10·30·60 %"]


def printed(*tables: object) -> list[list[str]]:
    """Return the cells of every line of the tables that has any."""
    from rich.console import Console

    output = io.StringIO()
    Console(width=160, file=output).print(*tables)
    return [
        [c.strip() for c in line.split("│")[1:-1]] for line in output.getvalue().splitlines() if "│" in line
    ]


def test_what_users_wait_for_is_printed_with_the_cost() -> None:
    results = run_bench(FakeEngine({"none": 2.0, "ngram": 1.0}), PROMPTS, SETTINGS)
    none, ngram = printed(result_tables(results, price_per_hour=0.36)[1])
    assert none[:5] == ["none", "500 / 500 / 500", "100 / 100 / 100", "100 / 100 / 100", "100 / 100 / 100"]
    assert ngram[1:5] == ["500 / 500 / 500", "52.6 / 52.6 / 52.6", "50 / 67.5 / 100", "100 / 100 / 100"]
    assert none[5:] == ["8.3", "–", "1", "10"]
    assert ngram[5:] == ["13.3", "1.00 .25", "2", "5"]


def test_the_means_are_printed_for_all_and_for_varied_replies() -> None:
    results = run_bench(FakeEngine({"none": 2.0, "ngram": 1.0}), PROMPTS, SETTINGS)
    assert printed(mean_table(results)) == [
        ["none", "all", "1", "0", "2", "1.00", "1.00x", "1.00x chat"],
        ["", "varied", "1", "0", "1", "1.00", "1.00x", "1.00x chat"],
        ["ngram", "all", "1", "0", "2", "2.00", "2.00x", "2.00x chat"],
        ["", "varied", "1", "0", "1", "2.00", "2.00x", "2.00x chat"],
    ]


def test_an_identical_share_that_does_not_apply_is_a_dash() -> None:
    settings = BenchSettings(("ngram",), temperature=1.0, unseeded=True)
    results = run_bench(FakeEngine({"none": 2.0, "ngram": 1.0}), PROMPTS, settings)
    rows = printed(result_tables(results)[0])
    assert [row[10] for row in rows] == ["–"] * 4
    data = json.loads(json.dumps(as_json(results, [settings], RunFacts(ENVIRONMENT))))
    assert data["runs"][1]["identical_share"] is None


def test_the_environment_names_this_machine() -> None:
    found = describe_environment(threads=2, instruction_path="avx2")
    assert found.cores >= 1
    assert found.cpu
    assert "numpy" in found.versions
