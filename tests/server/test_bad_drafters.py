"""A drafter that raises, drafts no tokens, or hangs: its request goes on plain, the others draft on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paceline import LLM
from paceline.drafters.base import DraftContext, DrafterCapabilities
from paceline.records import Draft
from support.served import Served, serving

BODY: dict[str, Any] = {"max_tokens": 40, "temperature": 0, "ignore_eos": True}
UNLUCKY, LUCKY = "the rest", "one two one two"
PATIENCE = 0.3


@dataclass
class Moody:
    """Drafts two tokens per step; for prompts of ``unlucky`` it does what ``fault`` does instead."""

    unlucky: tuple[int, ...] = ()
    fault: Callable[[], Draft] | None = None
    go: threading.Event = field(default_factory=threading.Event)
    name: str = "moody"
    capabilities: DrafterCapabilities = field(default_factory=DrafterCapabilities)

    def start(self, context: DraftContext) -> Session:
        is_unlucky = context.prompt_token_ids == self.unlucky
        return Session(self.fault if is_unlucky else None)

    def raises(self) -> Draft:
        raise RuntimeError("boom")

    def drafts_no_token(self) -> Draft:
        return Draft.chain([10**6])

    def hangs(self) -> Draft:
        self.go.wait(120)
        return Draft.chain([1])


@dataclass
class Session:
    """What a request gets of a :class:`Moody`."""

    fault: Callable[[], Draft] | None

    def propose(self, budget: int) -> Draft:
        return self.fault() if self.fault is not None else Draft.chain([5] * min(2, budget))

    def observe(self, step: Any) -> None:
        """Learn nothing."""

    def stop(self) -> None:
        """Hold nothing."""


@pytest.fixture(scope="module")
def moody() -> Iterator[Moody]:
    drafter = Moody()
    yield drafter
    drafter.go.set()


@pytest.fixture(scope="module")
def served(served_model: Path, moody: Moody) -> Iterator[Served]:
    llm = LLM(served_model, moody, threads=1, draft_timeout=PATIENCE)
    moody.unlucky = llm.generate(UNLUCKY)[0].prompt_token_ids
    with serving(llm) as served:
        yield served


def ask(served: Served, prompt: str, **more: Any) -> dict[str, Any]:
    answer = served.post("/v1/completions", {**BODY, "prompt": prompt, **more})
    assert answer.status_code == 200, answer.text
    reply: dict[str, Any] = answer.json()
    return reply


def num_drafted(reply: dict[str, Any]) -> int:
    return int(reply["metrics"]["speculative_decoding"]["num_draft_tokens"])


@pytest.mark.parametrize("fault", ["raises", "drafts_no_token", "hangs"])
def test_a_bad_drafter_costs_its_request_the_drafts_and_no_other(
    served: Served, moody: Moody, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    plain = {"speculative": {"enabled": False}}
    expected = {prompt: ask(served, prompt, **plain)["choices"][0]["text"] for prompt in (UNLUCKY, LUCKY)}
    moody.fault = getattr(moody, fault)
    replies: dict[str, dict[str, Any]] = {}
    threads = [
        threading.Thread(target=lambda p=prompt: replies.update({p: ask(served, p)}))  # type: ignore[misc]
        for prompt in (UNLUCKY, LUCKY)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {prompt: reply["choices"][0]["text"] for prompt, reply in replies.items()} == expected
    assert num_drafted(replies[UNLUCKY]) == 0
    assert num_drafted(replies[LUCKY]) > 0
    assert caplog.text.count("goes on without drafts") == 1
    assert served.get("/health").status_code == 200
    moody.fault = None
    assert num_drafted(ask(served, UNLUCKY)) > 0, "the next request drafts again"
    served.wait_until_idle()
