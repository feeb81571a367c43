"""The server's page as people use it, in a real browser: mouse, keyboard, a phone's width, light and dark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.browser import browser
from support.served import Served


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


class Open:
    """An open page, with all that it said and asked for."""

    def __init__(self, chromium: Any, served: Served, width: int = 1280, scheme: str = "light") -> None:
        self.page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.set_default_timeout(120_000)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(served.url + "/")
        self.page.wait_for_function("() => document.getElementById('about').textContent.includes('drafting')")

    def ask(self, question: str, tokens: int, press: str = "") -> None:
        self.page.fill("#tokens", str(tokens))
        self.page.fill("#prompt", question)
        if press:
            self.page.press("#prompt", press)
        else:
            self.page.click("button[type=submit]")

    # Functions, not expressions: the page's own policy forbids to evaluate text, for tests as well.

    def wait_for_notes(self, count: int) -> None:
        script = "count => [...document.querySelectorAll('.note')].filter(n => n.textContent).length >= count"
        self.page.wait_for_function(script, arg=count)

    def texts(self) -> list[str]:
        script = "all => all.map(e => [...e.querySelectorAll('span')].map(s => s.textContent).join(''))"
        return list(self.page.locator(".reply .text").evaluate_all(script))


def test_tokens_are_coloured_and_plain_decoding_says_the_same(chromium: Any, served: Served) -> None:
    seen = Open(chromium, served)
    seen.page.check("#beside")
    seen.page.check("#rejected")
    seen.ask("one two one two one two", 24)
    seen.wait_for_notes(2)
    drafted, plain = seen.texts()
    assert drafted == plain
    kinds = set(seen.page.locator(".text span").evaluate_all("all => all.map(e => e.className)"))
    assert kinds <= {"accepted", "recovered", "bonus"}
    assert kinds
    assert "tokens/s" in seen.page.locator(".note").first.inner_text()
    assert seen.said == []
    assert all(url.startswith(served.url) for url in seen.asked)
    seen.page.close()


def test_live_figures_and_the_configuration(chromium: Any, served: Served) -> None:
    seen = Open(chromium, served)
    seen.ask("count", 8)
    seen.wait_for_notes(1)
    seen.page.wait_for_function("() => document.getElementById('steps').textContent > '0'")
    seen.page.wait_for_function("() => document.querySelector('#rate-chart polyline')")
    seen.page.click("summary")
    assert '"max_model_len": 1024' in seen.page.inner_text("#config")
    seen.page.close()


def test_by_keyboard_and_with_stop(chromium: Any, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl+Enter sends; Stop ends the reply, and the server lets go of it."""
    step = served.llm.engine.step

    def slow_step() -> Any:  # or so small a model has said it all before anybody can press a key
        time.sleep(0.02)
        return step()

    monkeypatch.setattr(served.llm.engine, "step", slow_step)
    seen = Open(chromium, served)
    seen.ask("go on for ever", 900, press="Control+Enter")
    seen.page.wait_for_selector("#stop:not([disabled])")
    seen.page.focus("#stop")
    seen.page.keyboard.press("Enter")
    seen.wait_for_notes(1)
    served.wait_until_idle()
    seen.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_in_one_direction(chromium: Any, served: Served, scheme: str) -> None:
    seen = Open(chromium, served, width=360, scheme=scheme)
    seen.ask("x" * 400, 16)
    seen.wait_for_notes(1)
    assert seen.page.evaluate("document.documentElement.scrollWidth <= 360")
    colour = seen.page.evaluate("getComputedStyle(document.querySelector('.reply span')).backgroundColor")
    channels = [int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(", ")]
    assert (sum(channels) > 380) == (scheme == "light")
    seen.page.close()
