"""Counts of served replies are sums over replies, never means of means."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.engine.outputs import CompletionOutput, RequestMetrics
from paceline.llm import LLM
from paceline.train.evaluate import EvalPrompt, evaluate, summarize
from support.tiny_models import write_tiny_gguf


def reply(
    tokens: list[int], steps: int, drafts_at: tuple[int, ...], accepted_at: tuple[int, ...]
) -> CompletionOutput:
    metrics = RequestMetrics(
        num_prompt_tokens=3,
        num_output_tokens=len(tokens),
        num_forwards=steps,
        num_verify_steps=steps,
        num_drafts=drafts_at[0],
        num_draft_tokens=sum(drafts_at),
        num_accepted_tokens=sum(accepted_at),
        drafts_at=drafts_at,
        accepted_at=accepted_at,
        num_preemptions=0,
        num_cached_tokens=0,
        queue_seconds=0.0,
        ttft_seconds=0.0,
        total_seconds=1.0,
        draft_seconds=0.0,
        verify_seconds=0.0,
    )
    return CompletionOutput(0, "", tuple(tokens), (), metrics, "stop")


def test_figures_add_up_over_replies() -> None:
    varied = reply(list(range(40)), 20, (10, 10), (8, 4))
    looping = reply([1, 2] * 30, 10, (10, 8, 6), (10, 8, 4))
    figures = summarize("s", 0.0, [varied, looping])
    assert (figures.num_replies, figures.num_varied, figures.num_tokens, figures.num_steps) == (2, 1, 100, 30)
    assert figures.tokens_per_step == pytest.approx(100 / 30)
    assert figures.varied_tokens_per_step == pytest.approx(2.0), "the loop counts apart"
    assert figures.acceptance_rate == pytest.approx(34 / 44)
    assert figures.acceptance_rate_at == pytest.approx((18 / 20, 12 / 20, 4 / 20))
    assert figures.conditional_acceptance_at == pytest.approx((18 / 20, 12 / 18, 4 / 6))


def test_nothing_drafted_is_no_division() -> None:
    figures = summarize("s", 0.0, [reply([1, 2, 3], 3, (0,), (0,))])
    assert (figures.acceptance_rate, figures.acceptance_rate_at) == (0.0, ())
    assert figures.tokens_per_step == 1.0


def test_sources_are_told_apart(tmp_path: Path) -> None:
    llm = LLM(write_tiny_gguf(tmp_path / "tiny.gguf"), "none", threads=1, max_model_len=64)
    prompts = [EvalPrompt("ab"[i % 2], (10 + i, 11, 12)) for i in range(5)]
    done: list[int] = []
    served = evaluate(llm, prompts, 1.0, 6, chunk=2, progress=lambda n, tokens: done.append(n))
    assert [(row.source, row.num_replies) for row in served] == [("all", 5), ("a", 3), ("b", 2)]
    assert served[0].num_tokens == served[1].num_tokens + served[2].num_tokens
    assert done == [2, 2, 1]
    again = evaluate(llm, prompts, 1.0, 6, chunk=5)
    assert again == served, "seeds belong to the prompts, not to the chunks"
