"""One running request: its tokens, its cache, its drafter, its counts. Mutable; the engine owns it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from paceline.control.decisions import StepRecord
from paceline.drafters.base import DraftSession, RememberingSession
from paceline.engine.draft import Pacing
from paceline.engine.outputs import CompletionOutput, Logprob, RequestMetrics, StepOutput
from paceline.engine.terms import QueueTerms
from paceline.engine.text import TextStream
from paceline.kv.block_table import BlockTable
from paceline.kv.prefix_cache import BlockKeys
from paceline.records import Draft, FinishReason, Origin
from paceline.sampling.params import SamplingParams
from paceline.sampling.sampler import RequestSampler

logger = logging.getLogger("paceline.engine")


@dataclass(slots=True)
class Counts:
    """Running counts and times; :class:`RequestMetrics` defines them."""

    num_forwards: int = 0
    num_verify_steps: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    drafts_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    num_preemptions: int = 0
    num_cached_tokens: int = 0
    arrived: float = field(default_factory=time.perf_counter)
    started: float | None = None
    first_token: float | None = None
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0

    def count_draft(self, size: int, depth: int) -> None:
        """Count one non-empty draft of ``size`` nodes that reaches ``depth``."""
        self.num_drafts += 1
        self.num_draft_tokens += size
        while len(self.drafts_at) < depth:
            self.drafts_at.append(0)
            self.accepted_at.append(0)
        for level in range(depth):
            self.drafts_at[level] += 1


class Request:
    """State of one request.

    ``drafter_name``: the name its drafter was asked for by. ``pacing``: bounds of its drafts, if it has any.
    ``tokens``: the prompt and all committed tokens (the *known* ones). ``computed``: how many of them have
    keys and values in the cache; slots behind may hold rejected drafts. ``finish_reason``: ``None`` while
    running. ``number``: rises with each request of the engine. ``num_remembered``: leading blocks that the
    prefix cache was told of.
    """

    def __init__(
        self,
        request_id: str,
        prompt: tuple[int, ...],
        params: SamplingParams,
        length_limit: int,
        draft_limit: int,
        sampler: RequestSampler,
        text: TextStream,
        table: BlockTable,
        terms: QueueTerms,
        number: int,
    ) -> None:
        self.request_id = request_id
        self.params = params
        self.prompt_length = len(prompt)
        self.length_limit = length_limit
        self.draft_limit = draft_limit
        self.sampler = sampler
        self.text = text
        self.table = table
        self.terms = terms
        self.number = number
        self.session: DraftSession | None = None
        self.pacing: Pacing | None = None
        self.drafter_name = "none"
        self.num_top_tokens = 0
        self.state_layers: tuple[int, ...] = ()
        self.tokens = list(prompt)
        self.computed = 0
        self.keys = BlockKeys(self.tokens, table.block_size)
        self.num_remembered = 0
        self.origins: list[Origin] = []
        self.logprobs: list[dict[int, Logprob]] = []
        self.cumulative_logprob = 0.0
        self.logit_hashes: list[str] = []
        self.finish_reason: FinishReason | None = None
        self.stop_reason: str | int | None = None
        self.counts = Counts()

    @property
    def known(self) -> int:
        """Known length: tokens that are certain."""
        return len(self.tokens)

    @property
    def pending(self) -> int:
        """Known tokens not computed yet; 1 for a request that only decodes."""
        return len(self.tokens) - self.computed

    @property
    def priority(self) -> int:
        """Lower is served first."""
        return self.terms.priority

    @property
    def num_output_tokens(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def is_running(self) -> bool:
        return self.finish_reason is None

    @property
    def draft_budget(self) -> int:
        """Most tokens worth drafting now: one of the remaining tokens comes from the target anyway."""
        if self.session is None or (self.pacing is not None and self.pacing.rest):
            return 0
        return max(0, min(self.draft_limit, self.length_limit - len(self.tokens) - 1))

    @property
    def wanted_layers(self) -> tuple[int, ...]:
        """Layers whose hidden states the drafter wants to observe; none once it has ended."""
        has_use = self.session is not None and (self.pacing is None or self.pacing.wants_states)
        return self.state_layers if has_use else ()

    def states_wanted_from(self, limit: int, num_requests: int) -> int:
        """Return the position from which the drafter needs states, if those before ``limit`` could be had
        without computing them; ``limit`` when none of these are missed. ``num_requests``: that are there.
        """
        wanted = [limit]

        def ask(session: DraftSession) -> None:
            if isinstance(session, RememberingSession):
                wanted[0] = session.states_wanted_from(limit, num_requests)
                if self.pacing is not None:
                    self.pacing.heed_states(session)

        if self.wanted_layers:
            self.with_session(ask)
        return min(limit, wanted[0])

    def with_session(self, action: Callable[[DraftSession], None]) -> None:
        """Run ``action`` on the drafter's session, timed; one that raises ends drafting, not the request."""
        if self.session is None:
            return
        start = time.perf_counter()
        try:
            action(self.session)
        except Exception:
            logger.warning(
                "the drafter of request %s failed; the request goes on without drafts",
                self.request_id,
                exc_info=True,
            )
            self.end_drafting()
        finally:
            self.counts.draft_seconds += time.perf_counter() - start

    def end_drafting(self) -> None:
        """Stop the session, once."""
        session, self.session = self.session, None
        if session is None:
            return
        try:
            if self.pacing is not None:
                self.pacing.guard.close()
                self.pacing.tell_unseen(session)
            session.stop()
        except Exception:
            logger.warning("stopping the drafter of request %s failed", self.request_id, exc_info=True)

    def release(self) -> None:
        """Give back everything the request holds: cache and drafter. Safe to call again."""
        self.forget_cache()
        self.end_drafting()

    def forget_cache(self) -> None:
        """Give the blocks back: every known token is pending again."""
        self.table.truncate(0)
        self.computed = self.num_remembered = 0

    def step_output(self, tokens: tuple[int, ...], draft: Draft, path: tuple[int, ...]) -> StepOutput:
        """Report a step that committed ``tokens``; ``path``: accepted nodes of ``draft``."""
        kept = set(path[: len(tokens)])
        drafted = draft.tree.tokens
        ended = not self.is_running
        return StepOutput(
            request_id=self.request_id,
            token_ids=tokens,
            text=self.text.take_delta(ended),
            completion=self.completion(0) if ended else None,
            origins=tuple(self.origins[len(self.origins) - len(tokens) :]),
            logprobs=self._last_logprobs(len(tokens)),
            rejected=tuple(token for node, token in enumerate(drafted) if node not in kept),
        )

    def _last_logprobs(self, count: int) -> tuple[dict[int, Logprob], ...] | None:
        if self.params.logprobs is None:
            return None
        return tuple(self.logprobs[len(self.logprobs) - count :])

    def completion(self, index: int) -> CompletionOutput:
        """Return the reply so far."""
        has_logprobs = self.params.logprobs is not None
        return CompletionOutput(
            index=index,
            text=self.text.text,
            token_ids=tuple(self.tokens[self.prompt_length :]),
            origins=tuple(self.origins),
            metrics=self.metrics(),
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            cumulative_logprob=self.cumulative_logprob if has_logprobs else None,
            logprobs=tuple(self.logprobs) if has_logprobs else None,
            logit_hashes=tuple(self.logit_hashes) if self.logit_hashes else None,
            steps=self._step_records(),
        )

    def _step_records(self) -> tuple[StepRecord, ...] | None:
        records = None if self.pacing is None else self.pacing.records
        return None if records is None else tuple(records)

    def metrics(self) -> RequestMetrics:
        """Return the counts and timings so far."""
        counts, now = self.counts, time.perf_counter()
        return RequestMetrics(
            num_prompt_tokens=self.prompt_length,
            num_output_tokens=self.num_output_tokens,
            num_forwards=counts.num_forwards,
            num_verify_steps=counts.num_verify_steps,
            num_drafts=counts.num_drafts,
            num_draft_tokens=counts.num_draft_tokens,
            num_accepted_tokens=counts.num_accepted_tokens,
            drafts_at=tuple(counts.drafts_at),
            accepted_at=tuple(counts.accepted_at),
            num_preemptions=counts.num_preemptions,
            num_cached_tokens=counts.num_cached_tokens,
            queue_seconds=(counts.started or now) - counts.arrived,
            ttft_seconds=(counts.first_token or now) - counts.arrived,
            total_seconds=now - counts.arrived,
            draft_seconds=counts.draft_seconds,
            verify_seconds=counts.verify_seconds,
        )
