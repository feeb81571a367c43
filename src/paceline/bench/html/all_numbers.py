"""Tables of every figure of every file, as they stand there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.bench.html.figure import Table, cell
from paceline.bench.html.figures_load import load_name
from paceline.bench.html.source import Sources

_SKIPPED = ("workload", "drafter", "model", "batch", "temperature", "varied", "categories", "samples")


def every_number(sources: Sources) -> list[Table]:
    """Return a table of all runs of each offline file, one of its varied replies, and one of load points."""
    tables = []
    for file in dict.fromkeys(case.file for case in sources.cases):
        cases = [case for case in sources.cases if case.file == file]
        names = [
            f"{c.workload}, {c.drafter}, batch {c.batch}"
            + (f", T {c.temperature:g}" if c.temperature else "")
            for c in cases
        ]
        tables.append(_table(f"{file}: all replies", names, [c.data for c in cases]))
        varied = [(name, c.data["varied"]) for name, c in zip(names, cases, strict=True) if c.get("varied")]
        if varied:
            tables.append(_table(f"{file}: varied replies", [n for n, _ in varied], [d for _, d in varied]))
        parts = [
            (f"{name}, {part}", data)
            for name, c in zip(names, cases, strict=True)
            for part, data in (c.get("categories") or {}).items()
        ]
        if parts:
            tables.append(_table(f"{file}: categories", [n for n, _ in parts], [d for _, d in parts]))
    for file in dict.fromkeys(point.file for point in sources.points):
        points = [point for point in sources.points if point.file == file]
        loads = [load_name(point.data) for point in points]
        tables.append(_table(f"{file}: loads", loads, [point.data for point in points]))
    return tables


def _table(caption: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    flat = [_flatten(row) for row in rows]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    cells = [[name, *(_cell(row.get(key)) for key in columns)] for name, row in zip(names, flat, strict=True)]
    return Table(caption, ["run", *columns], cells)


def _flatten(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested figures under dotted names; lists stay whole."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if not prefix and key in _SKIPPED:
            continue
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " / ".join(cell(part, ".4g") for part in value) or "–"
    return cell(value, ".4g")
