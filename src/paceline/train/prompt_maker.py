"""Training prompts of many kinds, composed from tables of our own and repeated exactly by a seed.

What a drafter learns from a target's replies depends on what the target was asked. `make_prompts` asks
for code, texts, roles, puzzles, mathematics, extraction, explanations, translation and facts; with a file
of prompts it also asks for summaries and for answers from retrieved passages. A row is ``{"id", "source",
"license", "messages"}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from paceline.errors import ConfigError
from paceline.train import (
    prompt_passages,
    prompt_tables_code,
    prompt_tables_facts,
    prompt_tables_german,
    prompt_tables_puzzles,
    prompt_tables_science,
    prompt_tables_writing,
)
from paceline.train.prompt_grammar import Tables, expand, with_articles
from paceline.train.prompt_stdlib import routines, stdlib_prompt

Row = dict[str, Any]
Maker = Callable[[Random], str]

OWN = "own"
PSF = "PSF (names and docstrings of the Python standard library)"
COUNTS = {
    "stdlib": 1200,
    "code": 1300,
    "writing": 750,
    "roleplay": 350,
    "reasoning": 450,
    "math": 600,
    "extraction": 450,
    "stem": 500,
    "humanities": 400,
    "translation": 1000,
    "facts": 400,
}
CONTEXT_COUNTS = {"summary": 1000, "retrieval": 1000, "lookup": 200}
GRAM_WORDS = 8
# A table that runs out of new texts is a fault of the tables, not a reason to loop for ever.
MAX_TRIES = 60


def make_prompts(seed: int, *, prompts_file: Path | None = None, held_out: Sequence[str] = ()) -> list[Row]:
    """All rows in random order, without those that overlap a held-out text.

    ``prompts_file`` (JSON lines) adds the rows around passages. Raises ``ConfigError`` if a kind cannot
    give as many different texts as asked for.
    """
    rows = [row for kind in COUNTS for row in own_rows(kind, COUNTS[kind], seed)]
    if prompts_file is not None:
        rows += context_rows(prompts_file, seed)
    rows = without_overlap(rows, held_out)
    Random(f"{seed}:order").shuffle(rows)
    return rows


def own_rows(kind: str, count: int, seed: int) -> Iterator[Row]:
    """Yield ``count`` rows of different texts of one kind of `COUNTS`."""
    rng = Random(f"{seed}:{kind}")
    make = _maker(kind)
    seen: set[str] = set()
    for _ in range(MAX_TRIES * count):
        if len(seen) == count:
            return
        text = make(rng)
        if text not in seen:
            seen.add(text)
            yield _row(f"{kind}-{len(seen)}", f"own:{kind}", PSF if kind == "stdlib" else OWN, text)
    if len(seen) < count:
        raise ConfigError(
            f"count={count}: the tables of {kind!r} give {len(seen)} different prompts; ask for fewer"
        )


def context_rows(prompts_file: Path, seed: int) -> list[Row]:
    """Rows around the passages and questions of a file of prompts, at most `CONTEXT_COUNTS` of each kind."""
    rng = Random(f"{seed}:context")
    source = prompt_passages.read_prompts(prompts_file)
    news = prompt_passages.news_passages(source)
    reading = prompt_passages.reading_passages(source)
    lookups = prompt_passages.looked_up_questions(source)
    made = {
        "summary": [(p.license, prompt_passages.summary_prompt(p)) for p in _sample(news, "summary", rng)],
        "retrieval": [
            (p.license, prompt_passages.retrieval_prompt(p, reading, rng))
            for p in _sample(reading, "retrieval", rng)
        ],
        "lookup": [(p.license, p.question) for p in _sample(lookups, "lookup", rng)],
    }
    return [
        _row(f"{kind}-{number}", f"p3:{kind}", license_, text)
        for kind, pairs in made.items()
        for number, (license_, text) in enumerate(pairs, 1)
    ]


def without_overlap(rows: Iterable[Row], held_out: Iterable[str]) -> list[Row]:
    """The rows that share no run of `GRAM_WORDS` words with a held-out text, in their order.

    Case and punctuation do not count. A held-out text of fewer words counts as one run, so a row that
    contains it whole is dropped.
    """
    grams = {gram for text in held_out for gram in _grams(_words(text), GRAM_WORDS)}
    sizes = sorted({len(gram) for gram in grams})
    return [row for row in rows if not _touches(_words(row["messages"][0]["content"]), grams, sizes)]


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Write rows as JSON lines."""
    with path.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _maker(kind: str) -> Maker:
    if kind == "stdlib":
        known = routines()
        return lambda rng: stdlib_prompt(known, rng)
    if kind == "translation":
        return _german_prompt
    tables: dict[str, Tables] = {
        "code": prompt_tables_code.TABLES,
        "writing": prompt_tables_writing.TABLES,
        "roleplay": prompt_tables_writing.TABLES,
        "stem": prompt_tables_science.TABLES,
        "humanities": prompt_tables_science.TABLES,
        "reasoning": prompt_tables_puzzles.TABLES,
        "math": prompt_tables_puzzles.TABLES,
        "extraction": prompt_tables_puzzles.TABLES,
        "facts": prompt_tables_facts.TABLES,
    }
    chosen = tables[kind]
    return lambda rng: with_articles(expand(rng.choice(chosen[kind]), chosen, rng))


def _german_prompt(rng: Random) -> str:
    """Half of the sentences have their punctuation set off by spaces, as translation corpora often do."""
    sentence = expand(rng.choice(prompt_tables_german.GERMAN), prompt_tables_german.TABLES, rng)
    if rng.random() < 0.5:
        sentence = re.sub(r" ?([,;:?!„“]|\.$) ?", r" \1 ", sentence).strip()
    return f"Translate German to English: {' '.join(sentence.split())}"


def _sample(passages: list[prompt_passages.Passage], kind: str, rng: Random) -> list[prompt_passages.Passage]:
    return rng.sample(passages, min(CONTEXT_COUNTS[kind], len(passages)))


def _row(number: str, source: str, license_: str, text: str) -> Row:
    messages = [{"role": "user", "content": text}]
    return {"id": f"made-{number}", "source": source, "license": license_, "messages": messages}


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _grams(words: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    """Every run of ``size`` words; of a shorter text the whole text, of an empty one nothing."""
    if len(words) < size:
        return iter([tuple(words)] if words else [])
    return zip(*(words[start:] for start in range(size)), strict=False)


def _touches(words: Sequence[str], grams: set[tuple[str, ...]], sizes: Sequence[int]) -> bool:
    return any(gram in grams for size in sizes for gram in _grams(words, size))
