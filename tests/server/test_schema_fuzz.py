"""Requests made up from the server's own OpenAPI description, valid and not: nothing breaks it.

Bounded and repeatable: schemathesis draws so many examples of each operation, always the same ones. Answers
must have a status, a type and an error's form that the description has too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as fixed_seed
from hypothesis import strategies as st

from paceline import LLM
from support.served import Served, serving

schemathesis = pytest.importorskip("schemathesis")

BODIES = {
    "/v1/chat/completions": ("messages",),
    "/v1/completions": ("prompt",),
    "/tokenize": ("prompt",),
    "/detokenize": ("tokens",),
}
"""Endpoints that take a body, and what it must hold."""
GETS = ("/v1/models", "/v1/models/{name}", "/v1/config", "/health", "/ready", "/metrics")
POSITIVE, NEGATIVE = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE


@pytest.fixture(scope="module")
def fuzzed(served_model: Path) -> Iterator[Served]:
    """Replies end soon, however many tokens are asked for."""
    with serving(LLM(served_model, threads=1), request_timeout=0.1) as served:
        yield served
        served.wait_until_idle()
        served.llm.engine.check_integrity()


@pytest.fixture(scope="module")
def description(fuzzed: Served) -> Any:
    return schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json")


def examples(count: int) -> Any:
    """Return what bounds a test to ``count`` examples, the same ones each time, and does not shrink them."""
    bounds = settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: fixed_seed(1)(bounds(test))


def check(case: Any) -> int:
    """Send a request and check its answer; return the status.

    Not each request that the description allows must succeed: it cannot say what contradicts what.
    """
    response = case.call(timeout=60)
    assert response.status_code < 500, case.as_curl_command()
    unsaid = schemathesis.checks.CHECKS.get_by_names(["positive_data_acceptance"])
    case.validate_response(response, excluded_checks=unsaid)
    return int(response.status_code)


def still_serves(served: Served) -> None:
    answer = served.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "temperature": 0})
    assert answer.status_code == 200


def test_all_endpoints_are_described(fuzzed: Served) -> None:
    paths = fuzzed.get("/openapi.json").json()["paths"]
    assert set(paths) == {*BODIES, *GETS, "/v1/embeddings"}


@pytest.mark.parametrize("path", BODIES)
def test_requests_that_fit_the_description(fuzzed: Served, description: Any, path: str) -> None:
    """Few parameters at a time, so that requests are answered and not only refused."""
    statuses: list[int] = []

    @examples(50)
    @given(case=description[path]["POST"].as_strategy(generation_mode=POSITIVE), data=st.data())
    def ask(case: Any, data: st.DataObject) -> None:
        optional = sorted(set(case.body) - {*BODIES[path], "model"})
        kept = data.draw(st.lists(st.sampled_from(optional), max_size=2)) if optional else []
        case.body = {name: case.body[name] for name in (*BODIES[path], *kept) if name in case.body}
        statuses.append(check(case))

    ask()
    still_serves(fuzzed)
    assert 200 in statuses


@pytest.mark.parametrize("path", BODIES)
def test_requests_that_do_not(fuzzed: Served, description: Any, path: str) -> None:
    statuses: set[int] = set()

    @examples(25)
    @given(case=description[path]["POST"].as_strategy(generation_mode=NEGATIVE))
    def ask(case: Any) -> None:
        statuses.add(check(case))

    ask()
    still_serves(fuzzed)
    assert 400 in statuses


@pytest.mark.parametrize(("method", "path"), [*(("GET", path) for path in GETS), ("POST", "/v1/embeddings")])
def test_endpoints_without_a_body(fuzzed: Served, description: Any, method: str, path: str) -> None:
    @examples(10)
    @given(case=description[path][method].as_strategy(generation_mode=POSITIVE))
    def ask(case: Any) -> None:
        check(case)

    ask()
    still_serves(fuzzed)


def test_each_bound_of_the_description(fuzzed: Served, tmp_path: Path) -> None:
    """Each parameter at its bounds and beyond, missing and of other types; methods that are not there.

    Found ``min_p`` and ``top_p`` out of range answered at temperature 0, where they change nothing.
    """
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{fuzzed.url}/openapi.json"]
    command += ["--phases=coverage", "--exclude-checks=positive_data_acceptance", "--no-color"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:]
    still_serves(fuzzed)
