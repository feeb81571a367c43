"""Results of checks as JSON and as lines and tables to read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from paceline.check.differences import Difference
from paceline.check.endpoints import EndpointResult
from paceline.check.law import LawResult, LawTest
from paceline.check.local import CheckResult
from paceline.check.replies import RepliesResult

if TYPE_CHECKING:
    from rich.table import Table

_MOST_SHOWN = 12


def as_json(result: CheckResult | EndpointResult, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything found; ``about``: what was checked and on what. Each part says whether it passed."""
    form = "local" if isinstance(result, CheckResult) else "endpoint"
    return {"kind": "check", "form": form, **about, **_plain(result)}


def _plain(value: Any) -> Any:
    """Return records as dictionaries with their ``passed``; ``None`` for infinity, which JSON lacks."""
    if is_dataclass(value) and not isinstance(value, type):
        fields = {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
        return {"passed": value.passed, **fields} if hasattr(value, "passed") else fields
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def local_lines(result: CheckResult) -> list[str]:
    """Return the parts of a local check, one line each, with their differences."""
    cache, law = result.cache, result.law
    lines = [
        *_replies_lines("greedy replies", "tokens and bits of logits", result.greedy),
        *_replies_lines(
            "seeded replies", "tokens and bits of logits, every second one in a batch", result.seeded
        ),
        f"{_mark(cache.passed)} cache: {cache.num_rows} rows of logits equal a fresh prefill, after "
        f"{cache.num_draft_tokens} random drafted tokens, {cache.num_refused} rolled back, "
        f"{cache.num_aborted} requests aborted",
        *difference_lines(cache.differences),
    ]
    if cache.lost:
        lines.append(f"    {cache.lost}")
    if not cache.num_refused:
        lines.append("    no drafted token was ever refused: nothing was rolled back, so nothing is shown")
    return [*lines, *_law_lines(law)]


def _replies_lines(name: str, what: str, part: RepliesResult) -> list[str]:
    noise = f"noise {part.noise:.2g}" if part.noise else "no noise: the same bits in any batch"
    counts = Counter(found.kind for found in part.differences)
    said = ", ".join(f"{count} {_WORDS[kind]}" for kind, count in counts.items()) or f"the same ({what})"
    extent = f"{part.num_replies} against plain, {part.num_tokens} tokens"
    lines = [f"{_mark(part.passed)} {name}: {extent}: {said}; {noise}", *difference_lines(part.differences)]
    silent = ", ".join(drafter for drafter, count in part.drafted.items() if not count)
    return [*lines, f"    {silent}: nothing was drafted here, so nothing is shown of it"] if silent else lines


_WORDS = {"bug": "bugs", "tie": "ties within noise", "baseline": "where plain does not repeat itself"}


def _law_lines(law: LawResult) -> list[str]:
    rules = [test for test in law.tests if not test.is_control]
    controls = [test for test in law.tests if test.is_control]
    held, caught = sum(test.passed for test in rules), sum(test.passed for test in controls)
    lines = [
        f"{_mark(law.passed)} law of sampled replies: {held} of {len(rules)} tests hold, {caught} of "
        f"{len(controls)} wrong rules caught; {law.num_draws:,} draws each behind prompt {law.prompt}",
        f"    a right engine fails here once in {1 / law.false_alarm:,.0f} runs; a law off by "
        f"{law.detectable:.1%} (total variation) is caught 99 times in 100",
    ]
    silent = ", ".join(test.name for test in rules if test.is_silent)
    if silent:
        lines.append(f"    {silent}: nothing was drafted behind this prompt, so nothing is shown of it")
    if caught < len(controls):
        lines.append(
            "    a wrong rule went unnoticed: behind these prompts the model is too sure of its words; give "
            "prompts that leave more open (stories, lists of ideas), or more --draws"
        )
    return lines


def law_table(law: LawResult) -> Table:
    """Return all tests of the law, a row for each."""
    from rich.table import Table

    table = Table(title="law of sampled replies", title_justify="left")
    for column in ("rule or drafter", "filters", "replies", "chi²", "degrees", "p", "drafted", ""):
        table.add_column(column, justify="left" if column in ("rule or drafter", "filters", "") else "right")
    for test in law.tests:
        verdict = ("caught" if test.passed else "NOT CAUGHT") if test.is_control else _verdict(test)
        drafted = "–" if test.num_draft_tokens is None else f"{test.num_draft_tokens:,}"
        numbers = (str(test.num_cells), f"{test.statistic:.1f}", str(test.degrees), f"{test.p_value:.2g}")
        table.add_row(test.name, test.filters, *numbers, drafted, verdict)
    return table


def endpoint_lines(result: EndpointResult) -> list[str]:
    """Return what two servers said of each other."""
    noise = [
        f"{name} {value:.3g}"
        for name, value in (
            ("of the plain server", result.noise_repeat),
            ("between both", result.noise_between),
        )
        if value is not None
    ]
    counts = Counter(found.kind for found in result.differences)
    said = "; ".join(f"{count} {_WORDS[kind]}" for kind, count in counts.items()) or "no difference"
    lines = [
        f"{_mark(result.passed)} {result.url} against {result.baseline_url}: {result.num_same} of "
        f"{result.num_prompts} replies the same, {result.num_tokens} tokens, compared by "
        f"{' and '.join(result.compared_by)}: {said}",
        f"    noise of a log-probability: {', '.join(noise)}"
        if noise
        else "    neither tells log-probabilities, so that no difference can be told from noise",
    ]
    if result.num_unclear:
        lines.append(
            f"    of {result.num_unclear} prompts nothing can be said: the plain server changes its reply"
        )
    return [*lines, *difference_lines(result.differences)]


def difference_lines(differences: Sequence[Difference]) -> list[str]:
    """Return a line for each difference, bugs first, and how many more there are."""
    order = {"bug": 0, "tie": 1, "baseline": 2}
    ranked = sorted(differences, key=lambda found: (order[found.kind], -(found.gap or 0.0)))
    lines = [f"    {line}" for line in map(_describe, ranked[:_MOST_SHOWN])]
    if len(ranked) > _MOST_SHOWN:
        lines.append(f"    … and {len(ranked) - _MOST_SHOWN} more (all are in the file of --json)")
    return lines


def _describe(found: Difference) -> str:
    where = f"{_NAMES[found.kind]}: prompt {found.prompt}, {found.subject}"
    one, two = (_shown(token, text) for token, text in zip(found.token_ids, found.texts, strict=True))
    if found.what in ("finish_reason", "usage"):
        return f"{where}: {found.what} {found.texts[0]} and {found.texts[1]}"
    if found.what == "logits":
        return f"{where}: other logits behind token {found.position} ({one})"
    if found.what == "logprob":
        return f"{where}: log-probability of token {found.position} ({one}) further apart than noise"
    gap = "gap unknown" if found.gap is None else f"gap {found.gap:.3g}"
    unit = "character" if found.what == "text" else "token"
    return f"{where}: {unit} {found.position}: {one} and {two}; {gap}, noise {found.noise:.2g}"


_NAMES = {"bug": "BUG", "tie": "tie within noise", "baseline": "baseline not repeatable"}


def _shown(token: int | None, text: str) -> str:
    if token is None:
        return repr(text) if text else "the end"
    return f"{token} {text!r}"


def _mark(passed: bool) -> str:
    return "ok  " if passed else "FAIL"


def _verdict(test: LawTest) -> str:
    if not test.passed:
        return "WRONG LAW"
    return "silent" if test.is_silent else "ok"
