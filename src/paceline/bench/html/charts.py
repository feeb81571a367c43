"""The kinds of charts: bars with spread, lines and points over axes, percentile ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.bench.html.svg import (
    NUM_SERIES,
    WIDTH,
    Scale,
    drawing,
    hint,
    label,
    marker,
    round_up,
    shortened,
    tag,
    ticks,
)

Format = Callable[[float], str]
LEFT, RIGHT, TOP, BOTTOM = 70.0, 28.0, 12.0, 46.0
PLOT_HEIGHT = 300.0
BAR, BAR_GAP, GROUP_GAP, GROUP_LABEL = 16.0, 4.0, 14.0, 20.0
VALUE_ROOM = 78.0
"""Right of the longest bar, for its value."""


def plain(value: float) -> str:
    """Return a number with three significant digits at most."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def percent(value: float) -> str:
    return f"{value:.0%}"


def times(value: float) -> str:
    return f"{value:.2f}×"


@dataclass(frozen=True, slots=True)
class Bar:
    """``low``, ``high``: the spread, drawn as a whisker; ``None`` without one. ``note``: for its hint."""

    series: int
    name: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Bars under one label."""

    label: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Line:
    """Points (x, y, hint) of one series; ``band``: (x, low, high) shaded behind; ``joined`` by a line."""

    series: int
    points: Sequence[tuple[float, float, str]]
    band: Sequence[tuple[float, float, float]] = ()
    joined: bool = True


@dataclass(frozen=True, slots=True)
class Range:
    """One row of percentiles."""

    label: str
    series: int
    p50: float
    p95: float
    p99: float


def bar_chart(title: str, description: str, groups: Sequence[Group], form: Format, mark_at: float) -> str:
    """Return horizontal bars from 0, grouped; a line stands at ``mark_at`` (1: as fast as plain)."""
    highest = max(bar.high or bar.value for group in groups for bar in group.bars)
    x = Scale(0.0, max(highest, mark_at) * 1.02, 2.0, WIDTH - VALUE_ROOM)
    parts, y = [], TOP
    for group in groups:
        parts.append(label(shortened(group.label), 2.0, y + 13.0, "group"))
        y += GROUP_LABEL
        for bar in group.bars:
            parts.append(_bar(bar, group.label, x, y, form))
            y += BAR + BAR_GAP
        y += GROUP_GAP
    bottom = y - GROUP_GAP + 4.0
    line = x(mark_at)
    parts.insert(0, tag("line", x1=line, x2=line, y1=TOP, y2=bottom, class_="reference"))
    parts.append(label(f"{form(mark_at)} = plain decoding", line, bottom + 16.0, "tick", "middle"))
    return drawing(title, description, bottom + 24.0, parts)


def _bar(bar: Bar, group: str, x: Scale, y: float, form: Format) -> str:
    spread = "" if bar.low is None or bar.high is None else f" ({form(bar.low)} to {form(bar.high)})"
    text = f"{group}, {bar.name}: {form(bar.value)}{spread}"
    shape = tag(
        "rect",
        hint(text),
        x=x(0.0),
        y=y,
        width=max(1.0, x(bar.value) - x(0.0)),
        height=BAR,
        rx=2.0,
        class_=f"mark s{bar.series % NUM_SERIES}",
    )
    end, middle = x(bar.value), y + BAR / 2
    if bar.low is not None and bar.high is not None:
        low, end = x(bar.low), max(end, x(bar.high))
        shape += tag(
            "path",
            d=f"M{low:.1f} {middle:.1f}H{x(bar.high):.1f}M{low:.1f} {middle - 4:.1f}v8"
            f"M{x(bar.high):.1f} {middle - 4:.1f}v8",
            class_="whisker",
        )
    return shape + label(form(bar.value), end + 6.0, middle + 4.5, "value")


def line_chart(
    title: str,
    description: str,
    lines: Sequence[Line],
    axes: tuple[str, str],
    *,
    x_ticks: Sequence[float] | None = None,
    x_log: bool = False,
    y_top: float | None = None,
    y_form: Format = plain,
    x_form: Format = plain,
    diagonal: bool = False,
    highlights: Sequence[tuple[float, float, int, str]] = (),
) -> str:
    """Return lines and points over two axes; y starts at 0, and so does x when ``diagonal``.

    ``highlights``: (x, y, series, text) ringed and named. ``diagonal``: a line x = y, both axes alike.
    """
    xs = [point[0] for line in lines for point in line.points]
    ys = [value for line in lines for value in (*(p[1] for p in line.points), *(b[2] for b in line.band))]
    top = y_top or round_up(max(max(ys), max(xs) if diagonal else 0.0) * 1.05)
    low, high = (0.0, top) if diagonal else (min(xs), max(xs))
    height = TOP + PLOT_HEIGHT + BOTTOM
    inset = 0.0 if diagonal else 14.0
    x = Scale(low, high, LEFT + inset, WIDTH - RIGHT - inset, x_log)
    y = Scale(0.0, top, TOP + PLOT_HEIGHT, TOP)
    parts = _grid(x, y, x_ticks or ticks(low, high), axes, y_form, x_form)
    if diagonal:
        parts.append(tag("line", x1=x(0.0), y1=y(0.0), x2=x(top), y2=y(top), class_="reference"))
    for line in lines:
        parts += _line(line, x, y)
    for order, (at, value, series, text) in enumerate(highlights):
        parts.append(_highlight(x(at), y(value), series, text, order))
    return drawing(title, description, height, parts)


def _grid(
    x: Scale, y: Scale, x_ticks: Sequence[float], axes: tuple[str, str], y_form: Format, x_form: Format
) -> list[str]:
    bottom = TOP + PLOT_HEIGHT
    parts = []
    for value in ticks(y.low, y.high):
        at = y(value)
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
        parts.append(label(y_form(value), LEFT - 6.0, at + 4.5, "tick", "end"))
    for value in x_ticks:
        parts.append(label(x_form(value), x(value), bottom + 18.0, "tick", "middle"))
        parts.append(tag("line", x1=x(value), x2=x(value), y1=bottom, y2=bottom + 4.0, class_="axis"))
    parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom, class_="axis"))
    parts.append(label(axes[0], (LEFT + WIDTH - RIGHT) / 2, bottom + 38.0, "axis-name", "middle"))
    middle = TOP + PLOT_HEIGHT / 2
    turned = f"rotate(-90 13 {middle:.0f})"
    parts.append(
        tag("text", axes[1], x=13.0, y=middle, class_="axis-name", text_anchor="middle", transform=turned)
    )
    return parts


def _line(line: Line, x: Scale, y: Scale) -> list[str]:
    parts, colour = [], f"s{line.series % NUM_SERIES}"
    if len(line.band) > 1:
        up = [f"{x(at):.1f},{y(high):.1f}" for at, _, high in line.band]
        down = [f"{x(at):.1f},{y(low):.1f}" for at, low, _ in reversed(line.band)]
        parts.append(tag("polygon", points=" ".join(up + down), class_=f"band {colour}"))
    if line.joined and len(line.points) > 1:
        way = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value, _ in line.points)
        parts.append(tag("polyline", points=way, class_=f"line {colour}"))
    parts += [marker(line.series, x(at), y(value), text) for at, value, text in line.points]
    return parts


def _highlight(x: float, y: float, series: int, text: str, order: int) -> str:
    """Return a ring with its name above the curve; names stand in a stack, equal rings within each other."""
    colour = f"s{series % NUM_SERIES}"
    is_right = x > WIDTH * 0.55
    name_y = TOP + 14.0 + 19.0 * order
    size = 9.0 + 4.0 * order
    ring = tag("circle", hint(text), cx=x, cy=y, r=size, class_=f"ring {colour}")
    leader = tag("line", x1=x, x2=x, y1=name_y + 4.0, y2=y - size, class_="leader")
    at, anchor = (x - 5.0, "end") if is_right else (x + 5.0, "start")
    return leader + ring + label(text, at, name_y, "value", anchor)


def range_chart(title: str, description: str, rows: Sequence[Range], unit: str) -> str:
    """Return one row of p50 (a point), p95 (a tick) and p99 (the end) for each range, from 0."""
    x = Scale(0.0, round_up(max(row.p99 for row in rows)), 9.0, WIDTH - 40.0)
    parts, y = [], TOP
    bottom = TOP + len(rows) * 40.0
    for value in ticks(0.0, x.high):
        parts.append(tag("line", x1=x(value), x2=x(value), y1=TOP, y2=bottom, class_="grid"))
        parts.append(label(plain(value), x(value), bottom + 17.0, "tick", "middle" if value else "start"))
    for row in rows:
        parts.append(label(shortened(row.label), 2.0, y + 13.0, "group"))
        parts += _range(row, x, y + 25.0, unit)
        y += 40.0
    parts.append(label(unit, WIDTH / 2, bottom + 36.0, "axis-name", "middle"))
    return drawing(title, description, bottom + 44.0, parts)


def _range(row: Range, x: Scale, y: float, unit: str) -> list[str]:
    colour = f"s{row.series % NUM_SERIES}"
    p50, p95, p99 = (plain(value) for value in (row.p50, row.p95, row.p99))
    text = f"{row.label}: median {p50}, 95 % within {p95}, 99 % within {p99} {unit}"
    return [
        tag("line", x1=x(row.p50), x2=x(row.p99), y1=y, y2=y, class_=f"line {colour}"),
        tag("line", x1=x(row.p95), x2=x(row.p95), y1=y - 6.0, y2=y + 6.0, class_=f"line {colour}"),
        tag("line", x1=x(row.p99), x2=x(row.p99), y1=y - 4.0, y2=y + 4.0, class_=f"line thin {colour}"),
        marker(row.series, x(row.p50), y, text),
    ]
