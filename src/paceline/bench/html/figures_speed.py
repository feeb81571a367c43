"""Speed-up per workload, acceptance per depth, predicted against measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from paceline.bench.html.charts import Bar, Group, Line, bar_chart, line_chart, percent, times
from paceline.bench.html.figure import (
    Chart,
    Figure,
    Palette,
    Table,
    cell,
    depth_means,
    setting_title,
    settings_of,
)
from paceline.bench.html.figures_load import load_name
from paceline.bench.html.source import Case, Sources

NO_OFFLINE = "No file holds an offline run: write one with paceline bench --json FILE."


def speedup_figure(sources: Sources, palette: Palette) -> Figure:
    """Bars for each workload and drafter, with the spread where it is known."""
    drafted = [case for case in sources.cases if case.drafter != "none"]
    lead = (
        "Wall time of plain decoding ÷ wall time with the drafter, on the same prompts. Whiskers: the "
        "95\u00a0% interval, or the slowest and fastest repeat in files from before there were intervals."
    )
    if not drafted:
        return Figure("speedup", "Speed-up per workload", lead, missing=[NO_OFFLINE])
    settings = settings_of(drafted)
    keys = [setting for setting, _ in settings]
    plain = {_place(case): case for case in sources.cases if case.drafter == "none"}
    charts, tables = [], []
    for setting, cases in settings:
        title = setting_title(setting, keys)
        groups = [
            Group(workload, [_bar(case, palette, plain) for case in cases if case.workload == workload])
            for workload in dict.fromkeys(case.workload for case in cases)
        ]
        note = f"Speed-up over plain decoding of {len(groups)} workloads, one bar for each drafter."
        svg = bar_chart(f"Speed-up, {title}", note, groups, times, 1.0)
        charts.append(Chart(title, svg, palette.legend(case.drafter for case in cases)))
        rows = [_speed_row(case, _spread(case, plain)) for case in cases]
        tables.append(Table(f"Speed-up, {title}", _SPEED_HEAD, rows))
    return Figure("speedup", "Speed-up per workload", lead, charts, tables)


_SPEED_HEAD = ("workload, drafter", "speed-up", "low", "high", "predicted", "tokens/s", "plain tokens/s")


def _place(case: Case) -> tuple[str, str, str, int, float]:
    return case.file, case.model, case.workload, case.batch, case.temperature


def _spread(
    case: Case, plain: dict[tuple[str, str, str, int, float], Case]
) -> tuple[float, float, float] | None:
    """Return low and high of the speed-up and the speed of plain decoding; ``None`` when nothing tells."""
    beside = plain.get(_place(case))
    speed = None if beside is None else beside.get("tokens_per_s")
    interval = case.get("speedup_ci")
    if interval is not None:
        return interval[0], interval[1], speed or 0.0
    repeats = case.get("tokens_per_s_spread")
    if repeats is None or not speed:
        return None
    # Scaled so that the bar's end, the median, lies where the median speed lies between the two.
    scale = case.data["speedup"] / case.data["tokens_per_s"]
    return repeats[0] * scale, repeats[1] * scale, speed


def _bar(case: Case, palette: Palette, plain: dict[tuple[str, str, str, int, float], Case]) -> Bar:
    spread = _spread(case, plain)
    low, high = spread[:2] if spread else (None, None)
    return Bar(palette.numbers[case.drafter], case.drafter, case.data["speedup"], low, high)


def _speed_row(case: Case, spread: tuple[float, float, float] | None) -> list[str]:
    low, high, speed = spread or (None, None, None)
    figures = [case.data["speedup"], low, high, case.get("predicted_speedup")]
    return [
        f"{case.workload}, {case.drafter}",
        *(cell(value, ".3f") for value in figures),
        *(cell(value, ".1f") for value in (case.get("tokens_per_s"), speed or None)),
    ]


def acceptance_figure(sources: Sources, palette: Palette) -> Figure:
    """Lines over depth: mean over the workloads, shaded from the lowest to the highest workload."""
    lead = (
        "Share of drafts whose token at this depth was kept. Lines: mean over the workloads; shaded: from "
        "the workload with the lowest to the one with the highest share."
    )
    found = [*_offline_depths(sources, palette), *_served_depths(sources)]
    missing = [] if found else [f"No file tells acceptance per depth. {NO_OFFLINE}"]
    charts, tables = [chart for chart, _ in found], [table for _, table in found]
    return Figure("acceptance", "Acceptance per depth", lead, charts, tables, missing)


def _offline_depths(sources: Sources, palette: Palette) -> Iterator[tuple[Chart, Table]]:
    settings = settings_of([case for case in sources.cases if case.get("acceptance_rate_at")])
    keys = [setting for setting, _ in settings]
    for setting, cases in settings:
        title = setting_title(setting, keys)
        names = list(dict.fromkeys(case.drafter for case in cases))
        lines = [
            _depth_line(name, palette.numbers[name], depth_means([c for c in cases if c.drafter == name]))
            for name in names
        ]
        rows = [(f"{c.workload}, {c.drafter}", c.data["acceptance_rate_at"]) for c in cases]
        yield _depth_chart(title, lines, palette.legend(names)), _depth_table(title, rows)


def _served_depths(sources: Sources) -> Iterator[tuple[Chart, Table]]:
    """Yield one chart of what servers count; its lines are loads, and have colours of their own."""
    rows = [
        (f"{point.server}, {load_name(point.data)}", point.data["speculation"]["acceptance_rate_at"])
        for point in sources.points
        if (point.data.get("speculation") or {}).get("acceptance_rate_at")
    ]
    if rows:
        title = "as the servers count"
        lines = [
            _depth_line(name, number, [(rate, rate, rate) for rate in rates])
            for number, (name, rates) in enumerate(rows)
        ]
        legend = [(number, name) for number, (name, _) in enumerate(rows)]
        yield _depth_chart(title, lines, legend), _depth_table(title, rows)


def _depth_line(name: str, series: int, rates: Sequence[tuple[float, float, float]]) -> Line:
    points = [(float(d), rate, f"{name}, depth {d}: {rate:.1%}") for d, (rate, _, _) in enumerate(rates, 1)]
    has_band = any(low < high for _, low, high in rates)
    band = [(float(d), low, high) for d, (_, low, high) in enumerate(rates, 1)] if has_band else []
    return Line(series, points, band)


def _depth_chart(title: str, lines: Sequence[Line], legend: Sequence[tuple[int, str]]) -> Chart:
    depths = sorted({point[0] for line in lines for point in line.points})
    svg = line_chart(
        f"Acceptance per depth, {title}",
        f"Share of drafts kept at depths 1 to {len(depths)}, one line for each of {len(lines)} drafters.",
        lines,
        ("depth in the draft", "share of drafts kept"),
        x_ticks=depths,
        y_top=1.0,
        y_form=percent,
    )
    return Chart(title, svg, legend)


def _depth_table(title: str, rows: Sequence[tuple[str, Sequence[float]]]) -> Table:
    depths = max(len(rates) for _, rates in rows)
    head = ["workload, drafter", *(f"depth {depth}" for depth in range(1, depths + 1))]
    padded = [
        [name, *(cell(r, ".1%") for r in rates), *["–"] * (depths - len(rates))] for name, rates in rows
    ]
    return Table(f"Acceptance per depth, {title}", head, padded)


def predicted_figure(sources: Sources, palette: Palette) -> Figure:
    """Points (predicted, measured): on the line, the cost table tells the truth."""
    title = "Predicted against measured"
    lead = (
        "Each point is one drafter on one workload. Across: the speed-up that the cost table predicts for "
        "the acceptance that was measured. Up: the measured one. On the line, the table is right."
    )
    cases = [c for c in sources.cases if c.drafter != "none" and c.get("predicted_speedup") is not None]
    if not cases:
        missing = (
            "No run holds a prediction: offline runs of files from before predictions have none, and a "
            "drafter without a measured cost gets none (see paceline profile)."
        )
        return Figure("predicted", title, lead, missing=[missing])
    rows = [
        [_case_name(c), *(cell(c.data[key], ".3f") for key in ("predicted_speedup", "speedup"))]
        for c in cases
    ]
    table = Table(f"{title} speed-up", ("run", "predicted", "measured"), rows)
    return Figure("predicted", title, lead, [_predicted_chart(cases, palette)], [table])


def _predicted_chart(cases: Sequence[Case], palette: Palette) -> Chart:
    names = list(dict.fromkeys(case.drafter for case in cases))
    points = {
        name: [
            (c.data["predicted_speedup"], c.data["speedup"], _agreement(c))
            for c in cases
            if c.drafter == name
        ]
        for name in names
    }
    error = fmean(abs(c.data["predicted_speedup"] / c.data["speedup"] - 1) for c in cases)
    svg = line_chart(
        "Predicted against measured speed-up",
        f"{len(cases)} points; the prediction is off by {error:.0%} on average.",
        [Line(palette.numbers[name], points[name], joined=False) for name in names],
        ("predicted speed-up", "measured speed-up"),
        diagonal=True,
        x_form=times,
        y_form=times,
    )
    return Chart(f"off by {error:.0%} on average", svg, palette.legend(names))


def _agreement(case: Case) -> str:
    predicted, measured = case.data["predicted_speedup"], case.data["speedup"]
    return f"{_case_name(case)}: predicted {predicted:.2f}×, measured {measured:.2f}×"


def _case_name(case: Case) -> str:
    extra = f", batch {case.batch}" if case.batch > 1 else ""
    warm = f", temperature {case.temperature:g}" if case.temperature else ""
    return f"{case.workload}, {case.drafter}{extra}{warm}"
