"""Latency distributions, and tokens per second against concurrency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.bench.html.charts import Line, Range, line_chart, plain, range_chart
from paceline.bench.html.figure import Chart, Figure, Palette, Table, cell, mean, server_name
from paceline.bench.html.source import Case, Sources

MEASURES = {
    "ttft_s": "Time to first token (TTFT)",
    "tpot_s": "Time per output token (TPOT)",
    "itl_token_s": "Gap between tokens (ITL per token)",
    "itl_step_s": "Gap between pieces of text (ITL per step)",
}
_PERCENTILES = ("p50", "p95", "p99", "mean")
Row = tuple[str, str, Mapping[str, float]]
"""What is drawn, the series it belongs to, its percentiles in seconds."""


def load_name(point: Mapping[str, Any]) -> str:
    """Return what was asked of a load point, in words."""
    rate = point.get("rate")
    return f"{rate:g} req/s" if rate is not None else f"{point['concurrency']} in flight"


def latency_figure(sources: Sources, palette: Palette) -> Figure:
    """A chart for each measure: a row for each drafter at each batch size, and for each load."""
    lead = (
        "Points: the median. Long ticks: 95 % of the values lie below. Ends: 99 %. Offline rows are means of "
        "these percentiles over the workloads; the tables have each workload."
    )
    charts, tables = [], []
    for key, title in MEASURES.items():
        rows = _offline_rows(sources, key) + _load_rows(sources, key)
        if rows:
            ranges = [
                Range(name, palette.numbers[series], *(1e3 * values[p] for p in ("p50", "p95", "p99")))
                for name, series, values in rows
            ]
            note = f"{len(rows)} distributions, in milliseconds."
            charts.append(Chart(title, range_chart(title, note, ranges, "milliseconds"), ()))
            single = _workload_rows(sources.cases, key) + _load_rows(sources, key)
            cells = [[n, *(cell(1e3 * values[p], ".2f") for p in _PERCENTILES)] for n, _, values in single]
            tables.append(Table(f"{title}, milliseconds", ("load", "p50", "p95", "p99", "mean"), cells))
    return Figure("latency", "Latency distributions", lead, charts, tables, _missing_batches(sources, charts))


def _missing_batches(sources: Sources, charts: Sequence[Chart]) -> list[str]:
    if not charts:
        return [
            "No file holds latencies: offline files from before they were measured have none. Write new ones "
            "with paceline bench --batch 1,8,32 --json FILE, or put load on a server with --endpoint."
        ]
    known = {case.batch for case in sources.cases if case.get("ttft_s")}
    known |= {point.data["concurrency"] for point in sources.points if point.data.get("concurrency")}
    absent = [str(size) for size in (1, 8, 32) if size not in known]
    return [f"Nothing was measured at batch or concurrency {', '.join(absent)}."] if absent else []


def _offline_rows(sources: Sources, key: str) -> list[Row]:
    groups: dict[tuple[str, str, int, float, str], list[Mapping[str, float]]] = {}
    for case in sources.cases:
        if case.get(key):
            place = (case.file, case.model, case.batch, case.temperature, case.drafter)
            groups.setdefault(place, []).append(case.data[key])
    files = {(place[0], place[1]) for place in groups}
    warm = {place[3] for place in groups}
    rows: list[Row] = []
    for (file, _, batch, temperature, drafter), values in sorted(groups.items(), key=lambda item: item[0][2]):
        name = f"batch {batch} · {drafter}"
        name += f" · temperature {temperature:g}" if len(warm) > 1 else ""
        name += f" · {file}" if len(files) > 1 else ""
        rows.append((name, drafter, {p: mean(v[p] for v in values) or 0.0 for p in _PERCENTILES}))
    return rows


def _workload_rows(cases: Sequence[Case], key: str) -> list[Row]:
    return [
        (
            f"batch {c.batch}, {c.workload}, {c.drafter}"
            + (f", T {c.temperature:g}" if c.temperature else ""),
            c.drafter,
            c.data[key],
        )
        for c in cases
        if c.get(key)
    ]


def _load_rows(sources: Sources, key: str) -> list[Row]:
    return [
        (f"{load_name(p.data)} · {p.server}", server_name(p.file, p.server), p.data[key])
        for p in sources.points
        if p.data.get(key)
    ]


def throughput_figure(sources: Sources, palette: Palette) -> Figure:
    """Tokens per second in total: over requests in flight (servers and offline batches), and over rates."""
    lead = (
        "Output tokens per second of all requests together, over how many are answered at once: requests in "
        "flight at a server, or the batch size of an offline run (mean over its workloads)."
    )
    closed, rates = _closed_points(sources), _rate_points(sources)
    charts, missing = [], []
    if any(len(points) > 1 for points in closed.values()):
        charts.append(_chart("requests at once", closed, palette, log=True))
    else:
        missing.append(
            "No file has two loads to draw a line through: run paceline bench --batch 1,8,32 offline, or "
            "--endpoint URL --concurrency 1,8,32."
        )
    if rates:
        charts.append(_chart("requests per second", rates, palette, log=False))
    rows = [
        [f"{name}, {cell(at)} {unit}", cell(speed, ".1f"), good]
        for found, unit in ((closed, "at once"), (rates, "requests/s"))
        for name, points in found.items()
        for at, speed, good in points
    ]
    tables = [Table("Tokens per second", ("load", "tokens/s", "good requests/s"), rows)] if rows else []
    return Figure("throughput", "Tokens per second against concurrency", lead, charts, tables, missing)


Speeds = dict[str, list[tuple[float, float, str]]]
"""By series: (load, tokens per second, goodput in words)."""


def _closed_points(sources: Sources) -> Speeds:
    found: Speeds = {}
    groups: dict[tuple[str, int], list[float]] = {}
    for case in sources.cases:
        groups.setdefault((case.drafter, case.batch), []).append(case.data["tokens_per_s"])
    for (drafter, batch), speeds in sorted(groups.items(), key=lambda item: item[0][1]):
        found.setdefault(drafter, []).append((float(batch), mean(speeds) or 0.0, "–"))
    for point in sources.points:
        if point.data.get("concurrency"):
            name = server_name(point.file, point.server)
            entry = (float(point.data["concurrency"]), point.data["tokens_per_s"], _good(point.data))
            found.setdefault(name, []).append(entry)
    return {name: sorted(points) for name, points in found.items()}


def _rate_points(sources: Sources) -> Speeds:
    found: Speeds = {}
    for point in sources.points:
        if point.data.get("rate") is not None:
            entry = (float(point.data["rate"]), point.data["tokens_per_s"], _good(point.data))
            found.setdefault(server_name(point.file, point.server), []).append(entry)
    return {name: sorted(points) for name, points in found.items()}


def _good(point: Mapping[str, Any]) -> str:
    goodput = point.get("goodput")
    return "–" if goodput is None else f"{goodput['requests_per_s']:.2f} ({goodput['share']:.0%})"


def _chart(axis: str, found: Speeds, palette: Palette, *, log: bool) -> Chart:
    lines = [
        Line(
            palette.numbers[name],
            [(at, v, f"{name}, {at:g} {axis}: {v:.1f} tokens/s") for at, v, _ in points],
        )
        for name, points in found.items()
    ]
    svg = line_chart(
        f"Tokens per second over {axis}",
        f"One line for each of {len(lines)} drafters and servers.",
        lines,
        (axis, "tokens per second, all requests"),
        x_ticks=sorted({point[0] for line in lines for point in line.points}),
        x_log=log,
        x_form=plain,
    )
    return Chart(f"over {axis}", svg, palette.legend(found))
