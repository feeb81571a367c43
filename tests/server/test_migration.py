"""The operators' documents against the program: flags, parameters, metrics and limits in them exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from paceline.cli.main import app
from paceline.sampling import grammar
from paceline.server import constraints, metrics, schema
from paceline.server.schema import ChatRequest, CompletionRequest
from paceline.server.settings import ServerSettings
from support.promql import check_query, known_labels
from support.served import Served

DOCS = Path(__file__).resolve().parents[2] / "docs"
PARAMETERS = {*ChatRequest.model_fields, *CompletionRequest.model_fields}


def flags() -> set[str]:
    """Return the long options of ``paceline serve``."""
    command: Any = typer.main.get_command(app)
    options = [word for option in command.commands["serve"].params for word in option.opts]
    return {word for word in options if word.startswith("--")}


def rows(document: str, heading: str) -> Iterator[list[str]]:
    """Yield the rows of all tables under a heading (up to the next of its level or above), as cells."""
    text = (DOCS / document).read_text("utf-8")
    level = heading.split(" ")[0]
    parts = re.split(rf"^(?=#{{1,{len(level)}}} )", text, flags=re.MULTILINE)
    found = [part for part in parts if part.startswith(heading + "\n")]
    assert found, heading
    for line in "\n".join(found).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and not set(line) <= set("|- "):
            yield cells


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_flags_that_others_are_told_to_use_exist() -> None:
    named = [w for _, here, *_ in rows("migration.md", "### Flags") for w in words(here)]
    assert len(named) > 25
    assert {word.split()[0] for word in named} <= flags()


def test_every_flag_is_in_the_guide_with_a_test() -> None:
    table = list(rows("serving.md", "## Flags"))[1:]
    named = {word.split()[0] for flag, *_ in table for word in words(flag)}
    assert named == flags() - {"--config"}
    for flag, *_, tests in table:
        links = re.findall(r"\]\(\.\./(tests/[^)]+)\)", tests)
        assert links, f"{flag} has no test"
        for link in links:
            assert (DOCS.parent / link).is_file(), link


def test_parameters_that_others_are_told_to_use_exist() -> None:
    for there, here, *_ in rows("migration.md", "### Parameters"):
        if here == "the same":
            assert set(words(there)) <= PARAMETERS, there
        elif here not in ("refused", "here"):
            assert set(words(here)) <= PARAMETERS, here


def test_what_is_said_to_be_refused_is(served: Served) -> None:
    tables = list(rows("migration.md", "### Parameters"))
    refused = [word for there, here, *_ in tables if here == "refused" for word in words(there)]
    refused += ["guided_json", "n_predict", "repeat_penalty", "n_probs", "t_max_predict_ms", "return_tokens"]
    assert len(refused) > 25
    for name in refused:
        answer = served.post("/v1/completions", {"prompt": "a", "max_tokens": 1, name: 1})
        assert answer.status_code == 400, name
        assert answer.json()["error"]["param"] == name


def test_metrics_and_queries_of_the_operations_guide_exist(served: Served) -> None:
    """And none is missing from its table; tests of the metrics say what they are."""
    body = {"prompt": "one two one two", "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    served.post("/v1/completions", {**body, "workload": "code", "speculative": {"drafter": "recycle"}})
    served.wait_until_idle()
    known = known_labels(served.get("/metrics").text)
    ours = {re.sub(r"^paceline:|_(bucket|sum|count)$", "", name) for name in known if "paceline:" in name}
    table = [words(cells[0]) for cells in rows("operations.md", "## Metrics") if len(cells) == 4]
    told = {re.sub(r"{.*", "", name) for names in table for name in names}
    assert told == ours
    text = (DOCS / "operations.md").read_text("utf-8")
    queries = re.findall(r"^        expr: (.+)$", text, re.MULTILINE)
    queries += [
        w for cells in rows("operations.md", "### What to compute from them") for w in words(cells[-1])
    ]
    assert len(queries) > 12
    for query in queries:
        check_query(query, known)


def test_limits_are_those_of_the_code() -> None:
    limits = {what: f"{limit}; {past}" for what, limit, past in list(rows("security.md", "## Limits"))[1:]}
    settings = ServerSettings(("a",))
    for what, number in (
        ("prompts × `n`", schema.MAX_PROMPTS),
        ("prompts × `n`", schema.MAX_COMPLETIONS),
        ("`top_logprobs`", schema.MAX_TOP_LOGPROBS),
        ("`logit_bias`", schema.MAX_BIASES),
        ("`stop`", schema.MAX_STOPS),
        ("`stop`", schema.MAX_STOP_LENGTH),
        ("grammars", grammar.MAX_SOURCE),
        ("grammars", grammar.MAX_SYMBOLS),
        ("grammars", constraints.KEPT),
        ("`workload`", metrics.MAX_WORKLOADS),
        ("messages, tools", schema.MAX_MESSAGES),
        ("messages, tools", schema.MAX_TOOLS),
        ("body", settings.max_body_bytes // 2**20),
        ("body", int(settings.body_seconds)),
    ):
        assert re.search(rf"(?<![\d,]){number:,}(?!\d|,\d)", limits[what]), (what, number)


@pytest.mark.parametrize("name", ["operations.md", "security.md", "migration.md", "serving.md"])
def test_links_lead_somewhere(name: str) -> None:
    text = (DOCS / name).read_text("utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        file = DOCS / (path or name)
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}, target
    assert name in (DOCS / "index.md").read_text("utf-8")
