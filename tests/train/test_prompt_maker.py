"""Made prompts are repeatable, different from each other, whole, and apart from what is held out."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from paceline.errors import ConfigError
from paceline.train import prompt_maker, prompt_passages
from paceline.train.prompt_grammar import entries, expand, with_articles
from paceline.train.prompt_maker import COUNTS, context_rows, make_prompts, own_rows, without_overlap

ARTICLE = " ".join(f"On day {day} the ferry of the island carried {day * 7} guests." for day in range(40))


def row(text: str) -> dict[str, object]:
    return {"id": "r", "source": "s", "license": "own", "messages": [{"role": "user", "content": text}]}


def texts(rows: list[dict[str, object]]) -> list[str]:
    return [r["messages"][0]["content"] for r in rows]  # type: ignore[index]


def test_entries_are_trimmed_and_never_empty() -> None:
    assert entries(" a\n b | c |\n ") == ("a b", "c")


def test_a_bound_slot_says_the_same_again_and_a_free_one_something_else() -> None:
    tables = {"who": ("Ann", "Bob"), "pair": ("{who}",)}
    for seed in range(20):
        words = expand("{a:who} {a} {who} {^pair}", tables, Random(seed)).split()
        assert words[0] == words[1]
        assert words[2] != words[0]
        assert words[3] in tables["who"]


def test_numbers_stay_in_their_range_and_layout_signs_become_layout() -> None:
    numbers = {int(expand("{-2..3}", {}, Random(seed))) for seed in range(200)}
    assert numbers == set(range(-2, 4))
    assert expand("a:¶→b", {}, Random(0)) == "a:\n    b"


def test_an_unknown_slot_is_an_error() -> None:
    with pytest.raises(KeyError, match="nothing"):
        expand("{nothing}", {}, Random(0))


@pytest.mark.parametrize(
    ("plain", "proper"),
    [
        ("a old map", "an old map"),
        ("A owl", "An owl"),
        ("a 8-sided die", "an 8-sided die"),
        ("a unit", "a unit"),
        ("a European city", "a European city"),
        ("a user", "a user"),
        ("vitamin a and b", "vitamin an and b"),
    ],
)
def test_articles(plain: str, proper: str) -> None:
    # The last case is the price of a rule without a dictionary; no table holds such a phrase.
    assert with_articles(plain) == proper


@pytest.mark.parametrize("kind", COUNTS)
def test_every_kind_gives_different_whole_prompts_that_a_seed_repeats(kind: str) -> None:
    rows = list(own_rows(kind, 120, seed=1))
    assert rows == list(own_rows(kind, 120, seed=1))
    assert rows != list(own_rows(kind, 120, seed=2))
    made = texts(rows)
    assert len(set(made)) == len({r["id"] for r in rows}) == 120
    for text in made:
        assert text == text.strip()
        assert "¶" not in text
        assert "→" not in text
        if kind != "stdlib":
            assert "{" not in text.replace("`{", "")


def test_a_kind_that_runs_out_of_texts_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_maker, "MAX_TRIES", 1)
    with pytest.raises(ConfigError, match=r"count=3000: the tables of 'facts' give \d+ different prompts"):
        list(own_rows("facts", 3000, seed=1))


def test_rows_that_share_eight_words_with_a_held_out_text_are_dropped() -> None:
    held_out = "Name the five largest lakes of the northern half of Europe, please."
    near = row("Tell me: name the FIVE largest lakes of the northern half!")
    far = row("Name the five largest lakes of the southern half of Europe, please.")
    assert without_overlap([near, far, row(held_out)], [held_out]) == [far]


def test_a_short_held_out_text_is_found_whole() -> None:
    same, within, other = row("who wrote dune"), row("Say who wrote Dune, and when."), row("Who wrote Emma?")
    assert without_overlap([same, within, other], ["Who wrote Dune?"]) == [other]


def test_nothing_held_out_drops_nothing() -> None:
    rows = [row("a"), row("")]
    assert without_overlap(rows, []) == rows
    assert without_overlap(rows, [""]) == rows


def test_all_prompts_come_in_random_order_without_the_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_maker, "COUNTS", {"math": 30, "facts": 30})
    rows = make_prompts(3)
    assert len(rows) == 60
    assert [r["source"] for r in rows] != sorted(r["source"] for r in rows)
    held_out = texts(rows)[7]
    assert held_out not in texts(make_prompts(3, held_out=[held_out]))


def test_passages_become_summaries_and_retrieval_prompts(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    reading = f'Question: "Who carried the guests?"\n\nContext: "{ARTICLE}"\n\nAnswer:'
    found = {
        "p3:xsum_DOC_tldr": f"{ARTICLE}\n\nTL;DR:",
        "p3:adversarial_qa_x": reading,
        "p3:wiki_qa_x": "Question: how old is the ferry\nWould that do?",
        "gsm8k-train": "How many guests?",
    }
    lines = [row(text) | {"source": source, "license": "L"} for source, text in found.items()]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    rows = context_rows(prompts, seed=1)
    by_kind = {r["source"]: r["messages"][0]["content"] for r in rows}
    assert {r["license"] for r in rows} == {"L"}
    assert by_kind["p3:lookup"] == "How old is the ferry?"
    summary = by_kind["p3:summary"]
    assert summary.startswith("Summarize: On day 0 the ferry")
    assert summary.endswith("guests.")
    assert len(summary) <= prompt_passages.MAX_CHARS + len("Summarize: ")
    *pieces, question = by_kind["p3:retrieval"].split("\n")
    assert question == "Who carried the guests?"
    assert any(piece.startswith("On day 0 ") and piece.endswith("guests.") for piece in pieces)


def test_a_text_is_cut_only_at_the_end_of_a_sentence() -> None:
    assert prompt_passages.cut_at_sentence("One. Two! Three", 11) == "One. Two!"
    assert prompt_passages.cut_at_sentence("One. Two and a...", 100) == "One."
    assert prompt_passages.cut_at_sentence("No end at all", 5) == ""
    assert prompt_passages.cut_at_sentence("Whole", 5) == "Whole"


def test_standard_library_prompts_name_their_licence() -> None:
    licenses = {kind: {r["license"] for r in own_rows(kind, 5, seed=1)} for kind in COUNTS}
    assert licenses.pop("stdlib") == {prompt_maker.PSF}
    assert set().union(*licenses.values()) == {"own"}


@pytest.mark.parametrize(
    "content",
    [
        'I know that the answer to the question "Who has the sixth ferry?" is in "{}". Can you tell me?',
        "The answer to the question: Who has the sixth ferry? is inside the article: {}, can you guess it ?",
        "This article: {} contains an answer for the question: Who has the sixth ferry?, what is it ?",
        "Who has the sixth ferry?\n\nMovie title: Ferries\nMovie plot: {}",
    ],
)
def test_question_and_passage_are_told_from_the_instruction_around_them(content: str) -> None:
    """Passages once came out with the instruction in front: the target then summarized the instruction."""
    line = row(content.format(ARTICLE)) | {"source": "p3:quoref_x", "license": "L"}
    (passage,) = prompt_passages.reading_passages([line])
    assert passage.question == "Who has the sixth ferry?"
    assert passage.text.startswith("On day 0 ")
    assert "ferry?" not in passage.text
