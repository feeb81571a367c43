"""One served tiny model for the tests that leave it as they found it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paceline import LLM
from support.program import Program
from support.served import Served, serving, write_served_model


@pytest.fixture(scope="session")
def served_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_served_model(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def reference(served_model: Path) -> LLM:
    """The same model, offline: what replies through the server must equal."""
    return LLM(served_model, threads=1)


@pytest.fixture(scope="session")
def shared_server(served_model: Path) -> Iterator[Served]:
    with serving(LLM(served_model, threads=1), metrics_compat="vllm") as served:
        yield served


@pytest.fixture
def served(shared_server: Served) -> Iterator[Served]:
    """The shared server; each test must leave it empty and whole."""
    yield shared_server
    shared_server.wait_until_idle()


@pytest.fixture
def start(served_model: Path) -> Iterator[Callable[..., Program]]:
    """Starts programs that serve the tiny model; those that still run at the end are killed."""
    started: list[Program] = []

    def begin(*options: str, before: str = "") -> Program:
        started.append(Program(served_model, *options, before=before))
        return started[-1]

    yield begin
    for program in started:
        program.end()
