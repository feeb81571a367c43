"""Prompts to measure with: the built-in workloads and files of the user's.

A file holds one JSON object per line (or is one JSON list of them), in one of these forms::

    {"question_id": 81, "category": "writing", "turns": ["…", "…"]}       Spec-Bench, MT-Bench (id works too)
    {"prompt": "…"}                                                       one user turn
    {"messages": [{"role": "system", "content": "…"}, {"role": "user", "content": "…"}]}
    {"task_id": "HumanEval/0", "prompt": "def …", "entry_point": "…"}     HumanEval
    {"question": "…", "answer": "…"}                                      GSM8K
    {"id": "…", "conversations": [{"from": "human", "value": "…"}, …]}    ShareGPT

``id`` and ``category`` are optional. Files may be compressed with gzip, whatever their name. Rows of any
other form are errors that name their line.

In a file, rows of the Spec-Bench form whose category is one of MT-bench's eight belong to one workload,
``mt-bench``, as Spec-Bench counts its tasks; every other category is a workload of its own.
"""

from __future__ import annotations

import gzip
import json
import logging
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import chain, zip_longest
from pathlib import Path

from paceline.bench.dataset_rows import FORM_WORDS, NothingToAskError, form_of
from paceline.config import check_int
from paceline.errors import ConfigError, nearest_name

logger = logging.getLogger("paceline.bench")

WORKLOADS = ("chat", "code", "math", "summarize", "extract", "rewrite")
MT_BENCH = "mt-bench"
MT_BENCH_CATEGORIES = (
    "writing",
    "roleplay",
    "reasoning",
    "math",
    "coding",
    "extraction",
    "stem",
    "humanities",
)
_GZIP = b"\x1f\x8b"

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One conversation to measure.

    ``workload``: what it is reported under. ``turns``: what the user says, one reply each; the replies of
    earlier turns stay in the conversation. ``opening``: messages that stand before the first turn (a system
    message, earlier replies). ``part``: its category within a workload of several, else empty.
    """

    id: str
    workload: str
    turns: tuple[str, ...]
    opening: tuple[tuple[str, str], ...] = ()
    part: str = ""

    @property
    def category(self) -> str:
        """What its row says it is: the part, or the workload where that has no parts."""
        return self.part or self.workload

    def messages(self, replies: Sequence[str]) -> list[Message]:
        """Return the conversation up to the turn that follows ``replies``."""
        said = list(self.opening)
        for turn, reply in zip(self.turns, replies, strict=False):
            said += [("user", turn), ("assistant", reply)]
        said.append(("user", self.turns[len(replies)]))
        return [{"role": role, "content": content} for role, content in said]


def load_workload(name: str) -> list[BenchPrompt]:
    """Return the prompts of a built-in workload. Raises ``ConfigError`` for an unknown name."""
    if name not in WORKLOADS:
        near = nearest_name(name, WORKLOADS)
        raise ConfigError(f"workload={name!r} is unknown{near}; valid: {', '.join(WORKLOADS)}")
    text = (resources.files("paceline.bench") / "workloads" / f"{name}.jsonl").read_text(encoding="utf-8")
    return _parse(text, f"workload {name}", name)


def load_dataset(path: Path) -> list[BenchPrompt]:
    """Return the prompts of a file, in its order.

    The workload of a row is its category (``mt-bench`` for those of MT-bench, see above), or the name of its
    form, or the file's name. Raises ``ConfigError`` naming the file and the line when a row cannot be read.
    """
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"dataset {path} cannot be read: {reason}") from error
    name = path.name.removesuffix(".gz")
    return _parse(_decoded(data, str(path)), str(path), Path(name).stem, MT_BENCH_CATEGORIES)


def choose_prompts(
    workloads: Sequence[str] = (), dataset: Path | None = None, limit: int | None = None
) -> list[BenchPrompt]:
    """Return the first ``limit`` prompts (``None``: all) of each workload named and of those in a file.

    Every built-in workload when neither is given. Raises ``ConfigError`` for what cannot be read.
    """
    if limit is not None:
        check_int("limit", limit, 1)
    names = workloads or (() if dataset else WORKLOADS)
    prompts = [prompt for name in dict.fromkeys(names) for prompt in load_workload(name)]
    return first_prompts(prompts + (load_dataset(dataset) if dataset else []), limit)


def taking_turns(prompts: Sequence[BenchPrompt]) -> list[BenchPrompt]:
    """Return the prompts, the first of every workload before the second of any: few hold some of each."""
    by_workload: dict[str, list[BenchPrompt]] = {}
    for prompt in prompts:
        by_workload.setdefault(prompt.workload, []).append(prompt)
    turns = chain.from_iterable(zip_longest(*by_workload.values()))
    return [prompt for prompt in turns if prompt is not None]


def first_prompts(prompts: Sequence[BenchPrompt], limit: int | None) -> list[BenchPrompt]:
    """Return ``limit`` prompts (``None``: all) of each workload; the workloads one after another.

    Within a workload the categories take turns, so that few prompts still hold something of each; what is
    chosen stays in its order.
    """
    chosen: list[BenchPrompt] = []
    for workload in dict.fromkeys(prompt.workload for prompt in prompts):
        mine = [prompt for prompt in prompts if prompt.workload == workload]
        ranks, seen = [], Counter[str]()
        for prompt in mine:
            ranks.append(seen[prompt.category])
            seen[prompt.category] += 1
        # Python's sort is stable: the first of every category, then the second of every category …
        order = sorted(range(len(mine)), key=ranks.__getitem__)[:limit]
        chosen += [mine[index] for index in sorted(order)]
    return chosen


def _decoded(data: bytes, source: str) -> str:
    """Return the text of a file. Raises ``ConfigError`` naming the first line that is not UTF-8."""
    try:
        return data.decode("utf-8-sig")  # Windows programs like to begin with a byte order mark
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{source}, line {line} is not UTF-8 (byte 0x{data[error.start]:02x}): save the file as UTF-8"
        ) from error


def _parse(text: str, source: str, workload: str, parts: Sequence[str] = ()) -> list[BenchPrompt]:
    """Return the prompts of ``text``; ``parts``: the categories that are parts of ``mt-bench``."""
    prompts: list[BenchPrompt] = []
    left_out = 0
    for number, row, where in _rows(text, source):
        try:
            prompts.append(_prompt(row, number, where, workload, parts))
        except NothingToAskError:
            left_out += 1
    if left_out:
        logger.warning(
            "%s: %d of %d conversations have no user's turn at their start and are left out",
            source,
            left_out,
            left_out + len(prompts),
        )
    if not prompts:
        raise ConfigError(f"{source} holds no prompts: write one JSON object per line with {FORM_WORDS}")
    return prompts


def _rows(text: str, source: str) -> Iterator[tuple[int, object, str]]:
    """Yield each row's number, the row, and its place in words."""
    if text.lstrip().startswith("[") and (rows := _whole_list(text, source)) is not None:
        yield from ((number, row, f"{source}, entry {number}") for number, row in enumerate(rows, 1))
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"{source}, line {number}"
            try:
                yield number, json.loads(line), where
            except (json.JSONDecodeError, RecursionError) as error:
                raise ConfigError(f"{where} is not JSON: {error}") from error


def _whole_list(text: str, source: str) -> list[object] | None:
    """Return the entries of a file that is one JSON list; ``None`` when its first line is JSON by itself."""
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        if _is_json(text.lstrip().split("\n", 1)[0]):
            return None
        raise ConfigError(f"{source}, line {error.lineno} is not JSON: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{source} is nested too deeply: {error}") from error
    return rows if isinstance(rows, list) else None


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return False
    return True


def _prompt(row: object, number: int, where: str, workload: str, parts: Sequence[str]) -> BenchPrompt:
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is no JSON object but {type(row).__name__}")
    form = form_of(row, where)
    opening, turns = form.read(row, where)
    identity = next((row[key] for key in form.identity if key in row), number)
    category = str(row.get("category", form.workload or workload))
    if "turns" in form.keys and category in parts:
        return BenchPrompt(str(identity), MT_BENCH, turns, opening, category)
    return BenchPrompt(str(identity), category, turns, opening)
