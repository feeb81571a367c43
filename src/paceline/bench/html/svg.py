"""Drawing with SVG text: elements, scales, ticks. Colours are CSS classes, so the page decides about them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 560
"""Of every chart, in its own units: wide enough for labels, and still readable at two thirds on a phone."""

NUM_SERIES = 8
"""Series that have a colour and a shape of their own; further ones take them again."""

MAX_NAME = 48


def tag(name: str, *children: str, **attributes: object) -> str:
    """Return an element. ``class_`` and ``stroke_width`` stand for ``class`` and ``stroke-width``.

    ``children`` are SVG text already; numbers are written with at most two decimals.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(number(value))}"' for key, value in attributes.items()
    )
    return f"<{name}{given}>{''.join(children)}</{name}>"


def number(value: object) -> str:
    """Return an attribute's text."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def label(text: str, x: float, y: float, class_: str = "label", anchor: str = "start") -> str:
    """Return a text; ``class_`` sets its size and colour."""
    return tag("text", escape(text), x=x, y=y, class_=class_, text_anchor=anchor)


def shortened(text: str) -> str:
    """Return a name that fits over a row of a chart, on a phone too; hints and tables have it whole."""
    return text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "…"


def hint(text: str) -> str:
    """Return what a pointer over the mark shows, and what a screen reader says."""
    return tag("title", escape(text))


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps low … high onto start … end (which may fall, as y does)."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, here = self.low, self.high, value
        if self.log:
            low, high, here = math.log(low), math.log(high), math.log(value)
        share = 0.5 if high == low else (here - low) / (high - low)
        return self.start + share * (self.end - self.start)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers within low … high, 1, 2 or 5 times a power of ten apart."""
    span = high - low
    if span <= 0:
        return [low]
    raw = span / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def round_up(high: float) -> float:
    """Return the first tick at or above ``high``, for an axis from 0."""
    if high <= 0:
        return 1.0
    step = ticks(0.0, high)[1] if len(ticks(0.0, high)) > 1 else high
    return math.ceil(high / step - 1e-9) * step


def marker(series: int, x: float, y: float, text: str, size: float = 5.0) -> str:
    """Return a data point: colour and shape tell its series, so that colour alone never has to."""
    shape = series % 4
    name = f"mark s{series % NUM_SERIES}"
    if shape == 0:
        return tag("circle", hint(text), class_=name, cx=x, cy=y, r=size)
    corners: Sequence[tuple[float, float]] = (
        [(-1, -1), (1, -1), (1, 1), (-1, 1)],
        [(0, -1.3), (1.2, 0.9), (-1.2, 0.9)],
        [(0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)],
    )[shape - 1]
    points = " ".join(f"{number(x + size * dx)},{number(y + size * dy)}" for dx, dy in corners)
    return tag("polygon", hint(text), class_=name, points=points)


def drawing(title: str, description: str, height: float, parts: Sequence[str]) -> str:
    """Return the whole picture, scaled to the page's width, named for those who do not see it."""
    return tag(
        "svg",
        tag("title", escape(title)),
        tag("desc", escape(description)),
        *parts,
        viewBox=f"0 0 {WIDTH} {number(height)}",
        role="img",
        class_="chart",
        aria_label=f"{title}. {description}",
    )
