"""The page of the interface, in a real browser: every endpoint and parameter, with its bounds."""

from __future__ import annotations

from paceline.server.schema import ChatRequest
from support.browser import browser
from support.served import Served


def test_endpoints_and_parameters(served: Served) -> None:
    with browser() as chromium:
        page = chromium.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(served.url + "/docs")
        page.wait_for_selector("h2")
        text = page.text_content("body")
        for path in served.get("/openapi.json").json()["paths"]:
            assert path in text
        row = "rows => rows.map(row => [...row.cells].slice(0, 2).map(cell => cell.textContent))"
        rows = dict(page.eval_on_selector_all("details:first-of-type tbody tr", row))
        assert set(ChatRequest.model_fields) <= set(rows)
        assert rows["presence_penalty"] == "number from -2 to 2"
        assert rows["top_p"] == "number above 0 to 1"
        assert rows["temperature"] == "number from 0"
        assert not wrong
