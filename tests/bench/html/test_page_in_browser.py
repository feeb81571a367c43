"""The report as people see it: opened in a real browser, wide and narrow, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.bench.html.page import render_page
from support import result_files
from support.browser import browser

NUM_WORKLOADS, NUM_DRAFTED = len(result_files.WORKLOADS), len(result_files.DRAFTERS) - 1
NUM_BATCHES, NUM_POINTS = 3, 5


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def full_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    files = result_files.write(
        folder,
        offline=result_files.offline(),
        load=result_files.load(),
        profile=result_files.stored_profile(),
    )
    page = folder / "report.html"
    page.write_text(render_page(files), encoding="utf-8")
    return page


class Seen:
    """A page that is open, with all that it said and asked for."""

    def __init__(self, chromium: Any, path: Path, width: int = 1280, scheme: str = "light") -> None:
        self.page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.set_default_timeout(120_000)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def count(self, selector: str) -> int:
        return int(self.page.locator(selector).count())

    def style(self, selector: str, name: str) -> str:
        script = "(element, name) => getComputedStyle(element).getPropertyValue(name)"
        return str(self.page.locator(selector).first.evaluate(script, name))


def test_the_page_opens_in_silence_and_asks_for_nothing(chromium: Any, full_page: Path) -> None:
    seen = Seen(chromium, full_page)
    assert seen.said == []
    assert [url for url in seen.asked if not url.startswith("data:")] == [full_page.as_uri()]
    assert seen.count("script, iframe, img, link[rel=stylesheet]") == 0
    assert seen.count("p.missing") == 1, "the cost of auto itself is nowhere measured"
    seen.page.close()


def test_charts_hold_a_mark_for_each_figure(chromium: Any, full_page: Path) -> None:
    seen = Seen(chromium, full_page)
    runs = NUM_BATCHES * NUM_WORKLOADS * NUM_DRAFTED
    depths = sum(len(rates) for rates in result_files.RATES.values())
    rows = len(result_files.cost_table()["verify"])
    per_measure = NUM_BATCHES * (NUM_DRAFTED + 1) + NUM_POINTS
    expected = {
        "#speedup rect.mark": runs,
        "#speedup .whisker": runs,
        "#acceptance .chart .mark": NUM_BATCHES * depths + NUM_POINTS * 3,
        "#acceptance .band": NUM_BATCHES * NUM_DRAFTED,
        "#cost .mark": rows,
        "#cost .ring": 2,
        "#latency .mark": 4 * per_measure,
        "#throughput .mark": NUM_BATCHES * (NUM_DRAFTED + 1) + NUM_POINTS,
        "#predicted .mark": runs,
    }
    assert {selector: seen.count(selector) for selector in expected} == expected
    # Nothing is drawn outside of its picture.
    outside = seen.page.evaluate(
        """() => [...document.querySelectorAll('svg.chart')].flatMap(svg => {
            const box = svg.getBoundingClientRect();
            return [...svg.querySelectorAll('.mark, .ring, text')].filter(mark => {
                const own = mark.getBoundingClientRect();
                return own.left < box.left - 1 || own.right > box.right + 1
                    || own.top < box.top - 1 || own.bottom > box.bottom + 1;
            }).map(mark => svg.getAttribute('aria-label').slice(0, 60) + ': ' + mark.textContent);
        })"""
    )
    assert outside == []
    seen.page.close()


def test_everything_drawn_is_named_and_every_number_is_in_a_table(chromium: Any, full_page: Path) -> None:
    seen = Seen(chromium, full_page)
    charts = seen.count("svg.chart")
    assert seen.count("svg.chart[role=img][aria-label]") == charts >= 12
    assert seen.count(".mark > title, .ring > title") == seen.count(".chart .mark, .chart .ring")
    assert seen.count("table > caption") == seen.count("table")
    assert seen.count("tbody tr") == seen.count("tbody th[scope=row]")
    seen.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert seen.page.get_by_role("row", name="chat, auto, batch 8").first.is_visible()
    assert seen.page.get_by_role("img", name="Predicted against measured speed-up").is_visible()
    seen.page.close()


@pytest.mark.parametrize("width", [360, 768])
def test_narrow_screens_need_no_scrolling_to_the_side(chromium: Any, full_page: Path, width: int) -> None:
    seen = Seen(chromium, full_page, width)
    seen.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    # Small print is still print: no text of a chart below 9 CSS pixels.
    smallest = seen.page.evaluate(
        """() => Math.min(...[...document.querySelectorAll('svg.chart')].map(svg => {
            const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
            return scale * Math.min(...[...svg.querySelectorAll('text')]
                .map(text => parseFloat(getComputedStyle(text).fontSize)));
        }))"""
    )
    assert smallest >= 9
    seen.page.close()


def _luminance(colour: str) -> float:
    channels = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, two: str) -> float:
    high, low = sorted((_luminance(one), _luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_both_readable(chromium: Any, full_page: Path, scheme: str) -> None:
    seen = Seen(chromium, full_page, scheme=scheme)
    paper, card = seen.style("body", "background-color"), seen.style("figure", "background-color")
    assert (_luminance(paper) < 0.1) == (scheme == "dark")
    # WCAG 2: 4.5 for text, 3 for what is drawn.
    for selector, behind in (("h1", paper), ("section > p", paper), (".legend li", card), ("td", card)):
        assert _contrast(seen.style(selector, "color"), behind) >= 4.5, selector
    for selector in (".chart .tick", ".chart .group"):
        assert _contrast(seen.style(selector, "fill"), card) >= 4.5, selector
    for series in range(5):
        assert _contrast(seen.style(f".chart .mark.s{series}", "fill"), card) >= 3.0, series
    seen.page.close()


def test_old_files_make_a_page_too_and_it_says_what_they_lack(chromium: Any, tmp_path: Path) -> None:
    files = result_files.write(tmp_path, old=result_files.old_offline(), rows=result_files.old_profile())
    page = tmp_path / "report.html"
    page.write_text(render_page(files), encoding="utf-8")
    seen = Seen(chromium, page, 390, "dark")
    assert seen.said == []
    assert seen.count("#speedup rect.mark") == NUM_WORKLOADS * NUM_DRAFTED
    assert seen.count("#cost .mark") == 16
    assert seen.count("#latency .mark") == 0
    missing = " ".join(seen.page.locator("p.missing").all_inner_texts())
    for text in (
        "no cost of drafting for ngram, eagle3, auto",
        "No file holds latencies",
        "No run holds a prediction",
    ):
        assert text in missing
    seen.page.close()
