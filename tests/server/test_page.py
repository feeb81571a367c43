"""The page is whole, asks nothing of other servers, and its files are the only ones to be had."""

from __future__ import annotations

import re

import pytest

from support.served import Served


def test_the_page_and_its_files(served: Served) -> None:
    page = served.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    named = [path for path in named if not path.startswith("data:")]  # the empty icon
    assert set(named) == {"static/page.css", "static/page.js", "docs", "metrics"}
    for path in named:
        assert served.get("/" + path).status_code == 200


def test_no_outside_requests(served: Served) -> None:
    for path in ("/", "/static/page.css", "/static/page.js", "/docs"):
        outside = re.findall(r"https?://[^\"' )]+", served.get(path).text)
        assert set(outside) <= {"http://www.w3.org/2000/svg"}, path  # a name space, not an address


def test_every_element_that_the_script_names_is_there(served: Served) -> None:
    page, script = served.get("/").text, served.get("/static/page.js").text
    ids = set(re.findall(r'\bid="([^"]+)"', page))
    named = set(re.findall(r'\bat\("([^"]+)"\)', script)) | set(
        re.findall(r'(?:line|bars)\("([^"]+)"', script)
    )
    assert named
    assert named <= ids


def test_every_control_has_a_label(served: Served) -> None:
    page = served.get("/").text
    for control in re.findall(r"<(?:input|textarea)[^>]*>", page):
        name = re.search(r'id="([^"]+)"', control)
        assert name is not None
        before = page[: page.index(control)]
        in_label = before.rfind("<label") > before.rfind("</label>")
        assert in_label or f'for="{name[1]}"' in page, control


def test_the_metrics_that_the_page_reads_exist(served: Served) -> None:
    served.post("/v1/completions", {"prompt": "one two one two one", "max_tokens": 4, "temperature": 0})
    metrics = served.get("/metrics").text
    script = served.get("/static/page.js").text
    names = set(re.findall(r"now\.([a-z_]+)", script)) - {"at", "time"}
    assert len(names) > 5
    for name in names:
        assert f"paceline:{name}{{" in metrics, name


@pytest.mark.parametrize(
    "name", ["index.html", "docs.html", "%2e%2e%2fsettings.py", "page.js%00", "page.js/x"]
)
def test_other_files_cannot_be_had(served: Served, name: str) -> None:
    assert served.get(f"/static/{name}").status_code == 404
