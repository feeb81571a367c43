"""What a request gives back, and what its counts mean (design.md, glossary)."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.control.decisions import StepRecord
from paceline.errors import PacelineError
from paceline.records import FinishReason, Origin


@dataclass(frozen=True, slots=True)
class Logprob:
    """``logprob``: log of the raw softmax. ``rank``: 1 is the likeliest. ``decoded_token``: its text."""

    logprob: float
    rank: int
    decoded_token: str


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """Counts and timings of one completion. Tokens dropped behind a stop rule appear in none of them.

    Counts. ``num_prompt_tokens``, ``num_output_tokens``: as delivered. ``num_forwards``: target forwards with
    rows of this request. ``num_verify_steps``: forwards that committed tokens of it. ``num_drafts``: verify
    steps with at least one drafted token. ``num_draft_tokens``: tokens proposed (nodes of trees).
    ``num_accepted_tokens``: draft tokens kept, without recovered or bonus ones. ``drafts_at[i]``: drafts that
    reached depth i + 1. ``accepted_at[i]``: drafts whose token at depth i + 1 was kept. ``num_preemptions``:
    times the cache was given up and computed again. ``num_cached_tokens``: prompt tokens that were not
    computed for the first token of the reply, because the prefix cache had them.

    Timings in seconds. ``queue_seconds``: arrival to first forward. ``ttft_seconds``: arrival to the first
    token. ``total_seconds``: arrival to the end. ``draft_seconds``: spent in this request's drafter.
    ``verify_seconds``: forwards that this request had rows in, whole ones, also when they were shared.
    """

    num_prompt_tokens: int
    num_output_tokens: int
    num_forwards: int
    num_verify_steps: int
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    drafts_at: tuple[int, ...]
    accepted_at: tuple[int, ...]
    num_preemptions: int
    num_cached_tokens: int
    queue_seconds: float
    ttft_seconds: float
    total_seconds: float
    draft_seconds: float
    verify_seconds: float

    @property
    def other_seconds(self) -> float:
        """Neither queueing nor drafting nor verifying: acceptance, commit, other requests' drafters."""
        return self.total_seconds - self.queue_seconds - self.draft_seconds - self.verify_seconds

    @property
    def acceptance_rate(self) -> float:
        """Accepted ÷ drafted tokens; 0 without drafts."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0

    @property
    def acceptance_rate_at(self) -> tuple[float, ...]:
        """Entry i: share of all drafts whose token at depth i + 1 was kept."""
        return tuple(count / self.num_drafts for count in self.accepted_at)

    @property
    def conditional_acceptance_at(self) -> tuple[float, ...]:
        """Entry i: share kept at depth i + 1 of the drafts that were kept at depth i and went on."""
        rates = []
        for depth, count in enumerate(self.accepted_at):
            kept_before = self.accepted_at[depth - 1] if depth else self.num_drafts
            went_on = min(kept_before, self.drafts_at[depth])
            rates.append(count / went_on if went_on else 0.0)
        return tuple(rates)

    @property
    def tokens_per_step(self) -> float:
        """Output tokens ÷ verify steps, bonus included (papers' τ, vLLM's mean acceptance length)."""
        return self.num_output_tokens / self.num_verify_steps if self.num_verify_steps else 0.0

    @property
    def num_forwards_saved(self) -> int:
        """Output tokens - verify steps: forwards that plain decoding would have run on top."""
        return self.num_output_tokens - self.num_verify_steps


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One reply. Lists have one entry per token.

    ``finish_reason``: ``None`` while running. ``stop_reason``: the stop string or stop id that ended the
    reply, ``None`` for EOS; for ``timeout`` the limit that was passed, ``max_queue_time`` or ``deadline``.
    ``logprobs``: token id → :class:`Logprob`, the chosen token always among them. ``origins``: accepted,
    recovered or bonus. ``logit_hashes``: see ``EngineConfig.record_logit_hashes``. ``steps``: what was
    drafted in each verify step and why, see ``EngineConfig.record_decisions``.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    origins: tuple[Origin, ...]
    metrics: RequestMetrics
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    cumulative_logprob: float | None = None
    logprobs: tuple[dict[int, Logprob], ...] | None = None
    logit_hashes: tuple[str, ...] | None = None
    steps: tuple[StepRecord, ...] | None = None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """All completions of one prompt. ``prompt`` is ``None`` when the prompt was given as token ids."""

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]

    @property
    def metrics(self) -> RequestMetrics:
        """Counts and timings of the first completion (each has its own)."""
        return self.outputs[0].metrics

    @property
    def finished(self) -> bool:
        return all(output.finish_reason is not None for output in self.outputs)


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """How busy an engine is now. ``num_waiting``: requests that do not run, preempted ones included.
    ``num_cached_blocks``: blocks that no request holds and the prefix cache knows; they count as free.
    ``num_prefix_queries``, ``num_prefix_hits``: tokens that requests came to run with, since the engine was
    made, and those of them that were not computed because the prefix cache had them.
    """

    num_running: int
    num_waiting: int
    num_blocks: int
    num_free_blocks: int
    num_cached_blocks: int
    num_prefix_queries: int
    num_prefix_hits: int


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one engine step gave one request: new tokens, new text, and the whole once it has ended.

    ``text`` is valid UTF-8 that will never be taken back: neither half a character nor a part of what may
    become a stop string. ``origins`` and, where asked for, ``logprobs`` have one entry per token.
    ``rejected``: drafted tokens that were not kept. ``error``: why the request ended before its time.
    """

    request_id: str
    token_ids: tuple[int, ...]
    text: str
    completion: CompletionOutput | None = None
    origins: tuple[Origin, ...] = ()
    logprobs: tuple[dict[int, Logprob], ...] | None = None
    rejected: tuple[int, ...] = ()
    error: PacelineError | None = None

    @property
    def runs_on(self) -> bool:
        """Whether more will come."""
        return self.completion is None and self.error is None
