"""What a reply tells of its speculation, what ends with a request and what does not, why drafting is off."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline import LLM
from paceline.errors import GrammarError
from paceline.sampling.grammar import GrammarState
from paceline.server.constraints import Constraints
from paceline.server.schema import CompletionRequest
from paceline.server.service import Service
from support.served import Served, serving

PROMPT = "one two three one two three one two three one two"
BODY: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "ignore_eos": True}


def events(served: Served, body: dict[str, Any]) -> list[dict[str, Any]]:
    text = served.post("/v1/completions", {**body, "stream": True}).text
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def test_the_metrics_of_a_reply(served: Served) -> None:
    """Each figure by its formula (docs/serving.md); a stream tells the same counts in its last chunk."""
    told = {
        "prediction": {
            "type": "content",
            "content": served.post("/v1/completions", BODY).json()["choices"][0]["text"],
        }
    }
    reply = served.post("/v1/completions", {**BODY, **told}).json()
    whole = reply["metrics"]["speculative_decoding"]
    steps, drafted, kept = (
        whole[f"num_{name}"] for name in ("spec_steps", "draft_tokens", "accepted_draft_tokens")
    )
    assert 0 < steps <= whole["num_verify_steps"]
    assert 0 < kept <= drafted
    assert whole["mean_acceptance_length"] == pytest.approx(1 + kept / steps)
    assert whole["draft_acceptance_rate"] == pytest.approx(kept / drafted)
    assert whole["tokens_per_step"] == pytest.approx(40 / whole["num_verify_steps"])
    assert sum(whole["acceptance_histogram"]) == steps
    assert sum(count * index for index, count in enumerate(whole["acceptance_histogram"])) == kept
    seconds = [whole[f"{name}_seconds"] for name in ("draft", "verify", "other")]
    assert min(seconds) >= 0 < whole["verify_seconds"]
    assert sum(seconds) <= reply["metrics"]["total_seconds"] * 1.01
    assert 0 <= reply["metrics"]["queue_seconds"] <= reply["metrics"]["ttft_seconds"]
    streamed = events(served, {**BODY, **told})[-1]["metrics"]["speculative_decoding"]
    counts = {name: value for name, value in whole.items() if not name.endswith("_seconds")}
    assert {name: streamed[name] for name in counts} == counts
    plain = served.post("/v1/completions", {**BODY, "speculative": {"enabled": False}}).json()
    none = plain["metrics"]["speculative_decoding"]
    assert (none["num_draft_tokens"], none["mean_acceptance_length"], none["acceptance_histogram"]) == (
        0,
        1.0,
        [0],
    )


@pytest.mark.parametrize("stream", [False, True])
def test_a_grammar_that_fails_ends_its_request_alone(
    served: Served, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """In the middle of a reply, while another one runs beside it."""
    beside = served.post("/v1/completions", {**BODY, "max_tokens": 120}).json()["choices"]
    mask, seen = GrammarState.mask, []

    def fail(state: GrammarState, row: Any, path: Any) -> None:
        seen.append(row)
        if len(seen) > 5:
            raise GrammarError("the grammar became too complex")
        mask(state, row, path)

    monkeypatch.setattr(GrammarState, "mask", fail)
    other: list[Any] = []
    thread = threading.Thread(
        target=lambda: other.append(served.post("/v1/completions", {**BODY, "max_tokens": 120}).json())
    )
    thread.start()
    body = {
        "prompt": PROMPT,
        "max_tokens": 60,
        "temperature": 0,
        "structured_outputs": {"regex": "[a-z ]{50}"},
    }
    if stream:
        error = events(served, body)[-1]["error"]
    else:
        answer = served.post("/v1/completions", body)
        assert answer.status_code == 400
        error = answer.json()["error"]
    thread.join()
    assert error["code"] == "grammar_error"
    assert "too complex" in error["message"]
    assert len(seen) == 6
    assert other[0]["choices"] == beside
    served.wait_until_idle()
    served.llm.engine.check_integrity()


def test_a_client_that_leaves_costs_one_step_more_at_most(
    served_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From when the server is told: the step that runs ends, and the next has no row of the request."""
    llm = LLM(served_model, "none", threads=1)
    forwards = 0
    forward = llm.executor.forward
    going = threading.Event()

    def count(batch: Any) -> Any:
        nonlocal forwards
        forwards += 1
        if forwards > 3:
            assert going.wait(60)  # in the middle of a step until the server knows
        return forward(batch)

    llm.executor.forward = count  # type: ignore[method-assign]
    at: list[int] = []
    close = Service.close

    def closed(service: Service, job: Any) -> None:
        at.append(forwards)
        close(service, job)
        going.set()

    monkeypatch.setattr(Service, "close", closed)
    with serving(llm) as served, served.client() as client:
        body = {**BODY, "max_tokens": 900, "stream": True}
        with client.stream("POST", "/v1/completions", json=body) as response:
            next(response.iter_bytes())
        served.wait_until_idle()
        assert at[0] <= forwards <= at[0] + 1
        assert forwards < 10
        assert llm.engine.pool.num_free == llm.engine.pool.num_blocks


def test_a_grammar_that_one_request_wore_out_serves_the_next(
    reference: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that follow a kept grammar share the states of its lexer: once one had reached their bound, every
    later request with the same schema was refused, until many others had pushed it out.
    """
    monkeypatch.setattr("paceline.sampling.grammar.MAX_LEXER_STATES", 500)
    constraints = Constraints(reference.tokenizer)
    request = CompletionRequest(prompt="a", structured_outputs={"regex": "(a|b|c)*a(a|b|c){30}d"})  # type: ignore[arg-type]
    grammar = constraints.of(request)
    assert grammar is not None
    assert constraints.of(request) is grammar
    ids = reference.tokenizer.encode("abc", add_bos=False)
    row = np.zeros(reference.tokenizer.vocab_size, np.float32)
    state, draw = grammar.start(), random.Random(1)
    with pytest.raises(GrammarError, match="too many states"):
        for _ in range(5000):
            state.mask(row, ())
            state.append(draw.choice(ids))
    with pytest.raises(GrammarError):
        grammar.start().mask(row, ())
    again = constraints.of(request)
    assert again is not None and again is not grammar
    again.start().mask(row, ())


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"drafter": "none"}, "started with drafter none"),
        ({"drafter": "ngram", "num_draft_tokens": 0}, "started with num_draft_tokens 0"),
    ],
    ids=["none", "zero"],
)
def test_why_drafting_is_off(served_model: Path, settings: dict[str, Any], why: str) -> None:
    with serving(LLM(served_model, threads=1, **settings)) as served:
        speculation = served.get("/v1/config").json()["speculation"]
        reply = served.post("/v1/completions", BODY).json()
    assert speculation["enabled"] is False
    assert why in speculation["why"]
    assert reply["metrics"]["speculative_decoding"]["num_draft_tokens"] == 0


def test_how_calls_are_written_is_told(served: Served) -> None:
    assert served.get("/v1/config").json()["tool_calls"] == {"form": "generic", "is_native": False}
