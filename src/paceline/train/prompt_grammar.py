"""A small grammar for writing prompts: templates with slots, tables of words, a seeded random source.

`{topic}` takes an entry of the table `topic`, `{3..9}` a whole number, `{^topic}` an entry with a capital
first letter; `{a:topic}` also remembers what it took, so that a later `{a}` says it again. Entries may
hold slots themselves. Within one expansion a table does not give the same entry twice while it has
another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random

Tables = Mapping[str, Sequence[str]]

_SLOT = re.compile(r"\{(\^?)(?:(\w+):)?(-?\w+(?:\.\.\w+)?)\}")
_RANGE = re.compile(r"(-?\d+)\.\.(\d+)")
# In a wrapped table a new line and a level of indentation need signs of their own.
_LAYOUT = str.maketrans({"¶": "\n", "→": "    "})
# "a" before a vowel sound; words such as "a unit" or "a European" begin with a consonant sound.
_ARTICLE = re.compile(r"\b([Aa]) (?=(?!uni[^nm]|us[aeiu]|eu|one\b|once\b)[aeiou]|8|11\b|18\b)", re.ASCII)


def entries(text: str) -> tuple[str, ...]:
    """Split a table written as one wrapped text: entries stand between bars, white space collapses."""
    return tuple(entry for part in text.split("|") if (entry := " ".join(part.split()).replace("¶ ", "¶")))


def expand(template: str, tables: Tables, rng: Random) -> str:
    """Fill every slot of a template; KeyError names a slot that no table and no earlier slot explains."""
    bound: dict[str, str] = {}
    used: set[tuple[str, str]] = set()

    def choose(name: str) -> str:
        if (span := _RANGE.fullmatch(name)) is not None:
            return str(rng.randint(int(span[1]), int(span[2])))
        if name in bound:
            return bound[name]
        table = tables[name]
        fresh = [entry for entry in table if (name, entry) not in used] if len(used) else table
        entry = rng.choice(fresh or table)
        used.add((name, entry))
        return _SLOT.sub(fill, entry)

    def fill(slot: re.Match[str]) -> str:
        value = choose(slot[3])
        if slot[2]:
            bound[slot[2]] = value
        return value[:1].upper() + value[1:] if slot[1] else value

    return _SLOT.sub(fill, template).translate(_LAYOUT)


def with_articles(text: str) -> str:
    """Turn "a" into "an" before a vowel sound, as English wants it."""
    return _ARTICLE.sub(r"\1n ", text)
