"""Prompts around passages of text: to be summarized, or to be read before a question is answered.

Passages and questions come from a file of prompts (JSON lines with ``source``, ``license`` and
``messages``) whose rows hold an article or a question within an instruction. Nothing of that file is kept
in this repository.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

NEWS = ("p3:cnn_dailymail", "p3:xsum", "p3:multi_news", "p3:samsum")
READING = ("p3:adversarial_qa", "p3:quoref", "p3:duorc")
LOOKED_UP = ("p3:wiki_qa", "p3:kilt_tasks_hotpotqa")
MAX_CHARS = 1400
GOLD_CHARS, SIDE_CHARS = 800, 420
QUESTIONS_PER_TEXT = 12
MIN_NEWS_CHARS, MIN_STORY_CHARS, MIN_READING_CHARS = 350, 600, 250

# What may stand before an article: a label, or an instruction that names the text, after a line with a title.
_LEAD = re.compile(
    r"^(?:[^\n]{0,80}\n)?[^\n:]{0,120}\b(?:article|articles|brief|summarize|document|documents|context|plot|"
    r"passage)\b[^\n:]{0,60}:\s*",
    re.IGNORECASE,
)
_QUESTION = re.compile(r"(?:^|[:\n\"]\s*)((?:[A-Za-z][^?\n\":]{7,160})\?)")
_TO_THE_READER = re.compile(
    r"\b(you|me|my|article|answer|the text|paragraph|passage|it)\b ?\??", re.IGNORECASE
)
_ASKING = (
    "who",
    "what",
    "when",
    "where",
    "which",
    "why",
    "how",
    "whose",
    "whom",
    "is",
    "are",
    "was",
    "were",
    "did",
)
# Instructions that surround question and passage within one sentence.
_WOVEN = (
    re.compile(
        r'I know that the answer to the question "(?P<q>.+?)" is in "(?P<text>.+)"\. Can you', re.DOTALL
    ),
    re.compile(
        r"The answer to the question: (?P<q>.+?) is inside the article: (?P<text>.+), can you", re.DOTALL
    ),
    re.compile(r"A friend asked me .*?: (?P<q>.+?), using the article: (?P<text>.+), what would", re.DOTALL),
    re.compile(
        r"This article: (?P<text>.+) contains an answer for the question: (?P<q>.+?), what", re.DOTALL
    ),
    re.compile(r"(?P<q>)I want to test .*\Z", re.DOTALL),
)
_PLAYER = re.compile(r"Media playback is (?:not supported|unsupported) on (?:this|your) device\s*")
_SENTENCE_END = re.compile(r"[.!?][\"'”’)]?(?=\s|$)")


@dataclass(frozen=True, slots=True)
class Passage:
    """A text, the question asked about it ("" if none), and the licence of the row it comes from."""

    text: str
    question: str
    license: str


def read_prompts(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file of prompts."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def cut_at_sentence(text: str, limit: int) -> str:
    """The longest beginning of at most ``limit`` characters that ends a sentence; "" if there is none."""
    if len(text) <= limit and not text.endswith("..."):
        return text
    ends = [end.end() for end in _SENTENCE_END.finditer(text.removesuffix("..."), 0, limit)]
    return text[: ends[-1]] if ends else ""


def news_passages(rows: Iterable[dict[str, Any]]) -> list[Passage]:
    """The articles and long stories of the rows, each once, cut to `MAX_CHARS`."""
    found: dict[str, Passage] = {}
    for row in _from(rows, NEWS + READING):
        shortest = MIN_NEWS_CHARS if str(row["source"]).startswith(NEWS) else MIN_STORY_CHARS
        article = cut_at_sentence(_read(_content(row))[0], MAX_CHARS)
        if len(article) >= shortest:
            found.setdefault(article[:80], Passage(article, "", row["license"]))
    return list(found.values())


def reading_passages(rows: Iterable[dict[str, Any]]) -> list[Passage]:
    """Passages with their question, each pair once, at most `QUESTIONS_PER_TEXT` of a passage."""
    found: dict[str, dict[str, Passage]] = {}
    for row in _from(rows, READING):
        text, question = _read(_content(row))
        text = cut_at_sentence(text, GOLD_CHARS)
        asked = found.setdefault(text[:80], {})
        if question and len(text) >= MIN_READING_CHARS and len(asked) < QUESTIONS_PER_TEXT:
            asked.setdefault(question, Passage(text, question, row["license"]))
    return [passage for asked in found.values() for passage in asked.values()]


def looked_up_questions(rows: Iterable[dict[str, Any]]) -> list[Passage]:
    """Short questions that came without a text, each once."""
    found: dict[str, Passage] = {}
    for row in _from(rows, LOOKED_UP):
        for line in _content(row).splitlines():
            asked = line.rpartition(": ")[2].removeprefix("Question 1. ").strip(' "?')
            words = asked.lower().split()
            if 4 <= len(words) <= 22 and words[0] in _ASKING and len(asked) <= 130:
                question = f"{asked[:1].upper()}{asked[1:]}?"
                found.setdefault(question, Passage("", question, row["license"]))
    return list(found.values())


def summary_prompt(passage: Passage) -> str:
    return f"Summarize: {' '.join(passage.text.split())}"


def retrieval_prompt(passage: Passage, others: Sequence[Passage], rng: Random) -> str:
    """Retrieved pieces, one a line, the right one among them, then the question.

    Side pieces break off within a sentence, as pieces of a fixed number of words do.
    """
    others = [other for other in others if other.text[:120] != passage.text[:120]]
    sides = [_piece(other.text, rng) for other in rng.sample(others, min(len(others), rng.randint(0, 2)))]
    pieces = [*sides, " ".join(passage.text.split())]
    rng.shuffle(pieces)
    return "\n".join([*pieces, passage.question])


def _piece(text: str, rng: Random) -> str:
    words = text.split()
    start = rng.randrange(max(1, len(words) - 60))
    return " ".join(words[start : start + 70])[:SIDE_CHARS]


def _from(rows: Iterable[dict[str, Any]], families: tuple[str, ...]) -> Iterable[dict[str, Any]]:
    return (row for row in rows if str(row["source"]).startswith(families))


def _content(row: dict[str, Any]) -> str:
    return str(row["messages"][0]["content"])


def _read(content: str) -> tuple[str, str]:
    """The passage and the question of a prompt, each "" where there is none."""
    for woven in _WOVEN:
        if (match := woven.match(content.strip())) is not None:
            return match.groupdict().get("text", "").strip(), _question(match["q"])
    text = _article(content)
    return text, _question(content.replace(text, "\n")) if text else ""


def _article(content: str) -> str:
    """The longest block of a prompt, without the instruction that leads into it."""
    blocks = [block for part in content.split("\n\n") for block in re.split(r"\n(?====)", part)]
    longest = max(blocks, key=len)
    lines = longest.split("\n")
    # An instruction or a question may share the block: it is a short line at either end.
    while len(lines) > 1 and (len(lines[-1]) < 120 and lines[-1].rstrip().endswith(("?", ":", "that"))):
        lines.pop()
    while len(lines) > 1 and len(lines[0]) < 200 and _is_instruction(lines[0]):
        lines.pop(0)
    text = "\n".join(lines)
    return _PLAYER.sub("", _LEAD.sub("", text, count=1)).strip(' \n"?,')


def _is_instruction(line: str) -> bool:
    if line.rstrip().endswith(("?", ":")):
        return True
    return re.match(r"(Question|Title|Extract|Please|If|Note)\b", line) is not None


def _question(instructions: str) -> str:
    """The question in what is left of a prompt once the passage is out, or ""."""
    for match in _QUESTION.finditer(instructions):
        question = " ".join(match[1].split())
        words = question.lower().split()
        if len(words) >= 4 and words[0] in _ASKING and _TO_THE_READER.search(question) is None:
            return question[:1].upper() + question[1:]
    return ""
