"""Programming prompts from the names, signatures and docstrings of the Python standard library.

The prompts depend on the library of the interpreter that runs this, so a seed repeats them for one Python
version.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from paceline.train.prompt_grammar import entries

MODULES = entries(
    """argparse | ast | asyncio | base64 | bisect | bz2 | calendar | cmath | codecs | collections | colorsys |
    concurrent.futures | configparser | contextlib | copy | csv | dataclasses | datetime | decimal |
    difflib | dis | email | enum | filecmp | fileinput | fnmatch | fractions | ftplib | functools | gc |
    getpass | gettext | glob | graphlib | gzip | hashlib | heapq | hmac | html | html.parser |
    http.client | http.cookies | imaplib | inspect | io | ipaddress | itertools | json | keyword |
    linecache | locale | logging | lzma | mailbox | math | mimetypes | multiprocessing | numbers |
    operator | os | os.path | pathlib | pickle | pkgutil | platform | pprint | profile | queue | quopri
    | random | re | sched | secrets | selectors | shelve | shlex | shutil | signal | smtplib | socket |
    socketserver | sqlite3 | ssl | stat | statistics | string | struct | subprocess | sys | tabnanny |
    tarfile | tempfile | textwrap | threading | time | timeit | tokenize | trace | traceback | types |
    typing | unicodedata | unittest | urllib.parse | urllib.request | urllib.robotparser | uuid | venv |
    warnings | wave | weakref | webbrowser | xml.dom.minidom | xml.etree.ElementTree | zipapp | zipfile
    | zlib"""
)
BUILTINS = (str, bytes, list, dict, set, tuple, int, float, complex, range, memoryview)
MAX_DOC_CHARS = 700

WITH_DOC = (
    'Write a Python function `{name}{signature}` that does the following: "{doc}"',
    "Implement your own version of `{path}` in Python. Its documentation says:\n\n{doc}",
    'Complete this Python function:\n\n```python\ndef {name}{signature}:\n    """{doc}"""\n```',
    "Here is the docstring of `{path}`:\n\n{doc}\n\nExplain it in simple words and show how it is used.",
    "Write unit tests with pytest for `{path}`. It is documented as follows: {doc}",
    "Rewrite this docstring so that it is easier to understand:\n\n{doc}",
    "Which function of the Python standard library is described here, and how do you call it?\n\n{doc}",
)
WITHOUT_DOC = (
    "Explain what `{path}` does in Python.",
    "Explain what `{path}` does in Python, with a short example.",
    "Show three ways to use `{path}` in Python.",
    "When should I use `{path}`, and what should I watch out for?",
    "Write a small Python program that uses `{path}`.",
    "What are the parameters of `{path}{signature}`?",
    "What is the difference between `{path}` and `{other}` in Python?",
    "How would you write code that does the same as `{path}` without importing `{module}`?",
    "Write a Python script that uses `{path}` and `{other}` together.",
    "What mistakes do beginners make with `{path}`?",
)


@dataclass(frozen=True, slots=True)
class Routine:
    """A documented function, class or method; ``doc`` is the docstring, cut at a paragraph end."""

    module: str
    path: str
    name: str
    signature: str
    doc: str


def routines() -> tuple[Routine, ...]:
    """Every public documented routine of the listed modules, in a fixed order, each docstring once."""
    found: dict[str, Routine] = {}
    for module in MODULES:
        for path, member in _members(importlib.import_module(module), module):
            if (routine := _describe(module, path, member)) is not None:
                found.setdefault(routine.doc, routine)
    for kind in BUILTINS:
        for name, member in sorted(vars(kind).items()):
            routine = _describe("builtins", f"{kind.__name__}.{name}", member)
            if not name.startswith("_") and routine is not None:
                found.setdefault(routine.doc, routine)
    return tuple(found.values())


def stdlib_prompt(known: tuple[Routine, ...], rng: Random) -> str:
    """One prompt about a routine; a "{other}" is a routine of the same module where there is one."""
    routine = rng.choice(known)
    template = rng.choice(WITH_DOC if rng.random() < 0.55 else WITHOUT_DOC)
    siblings = [r for r in known if r.module == routine.module and r.path != routine.path]
    return template.format(
        module=routine.module,
        path=routine.path,
        name=routine.name,
        signature=routine.signature,
        doc=routine.doc,
        other=rng.choice(siblings or known).path,
    )


def _members(module: object, prefix: str) -> Iterator[tuple[str, object]]:
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    for name in sorted(names):
        member = getattr(module, name, None)
        if not callable(member):
            continue
        yield f"{prefix}.{name}", member
        if inspect.isclass(member):
            for inner, method in sorted(vars(member).items()):
                if not inner.startswith("_") and callable(method):
                    yield f"{prefix}.{name}.{inner}", method


def _describe(module: str, path: str, member: object) -> Routine | None:
    doc = _first_paragraphs(inspect.getdoc(member) or "")
    if not callable(member) or len(doc) < 30:
        return None
    try:
        signature = str(inspect.signature(member))
    except (TypeError, ValueError):
        return None
    # A default that shows a memory address would differ from run to run.
    if " at 0x" in signature + doc or len(signature) > 160:
        return None
    return Routine(module, path, path.rpartition(".")[2], signature.replace(", /", ""), doc)


def _first_paragraphs(doc: str) -> str:
    kept = ""
    for paragraph in re.split(r"\n\s*\n", doc.strip()):
        if kept and len(kept) + len(paragraph) > MAX_DOC_CHARS:
            break
        kept = f"{kept}\n\n{paragraph}" if kept else paragraph
    # What a colon announces was cut away.
    return kept if len(kept) <= MAX_DOC_CHARS and not kept.endswith(":") else ""
