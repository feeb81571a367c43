"""The loop: scheduler → draft → verify → accept → commit, for any number of requests.

engine = Engine(executor, tokenizer, eos_ids, drafters, spec, config)
engine.add_request("0", prompt_ids, SamplingParams(temperature=0))
while engine.has_unfinished:
    for output in engine.step(): ...
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from paceline.config import EngineConfig, SpecConfig
from paceline.control.default_costs import CONSERVATIVE_COSTS
from paceline.control.draft_clock import DraftClock
from paceline.control.drift_watch import DriftWatch
from paceline.control.guard import Savings
from paceline.drafters.base import Drafter
from paceline.engine import commit as committing
from paceline.engine.accept import Acceptance, accept
from paceline.engine.admit import check_request, length_limit
from paceline.engine.deadlines import Deadlines
from paceline.engine.draft import hear, propose_all
from paceline.engine.outputs import CompletionOutput, EngineLoad, StepOutput
from paceline.engine.request import Request, logger
from paceline.engine.scheduler import Plan, Scheduler, advance
from paceline.engine.start import start_drafting
from paceline.engine.terms import QueueTerms
from paceline.engine.text import TextStream, TokenDecoder
from paceline.engine.verify import Verified, verify
from paceline.errors import CacheFullError, ConfigError, GrammarError, PacelineError
from paceline.executors.base import Executor
from paceline.kv.block_pool import BlockPool
from paceline.kv.block_table import BlockTable
from paceline.records import EMPTY_DRAFT, Draft, FloatArray
from paceline.sampling.chance import Chance, SeededChance
from paceline.sampling.params import SamplingParams
from paceline.sampling.sampler import RequestSampler, resolve_acceptance
from paceline.theory.cost_table import CostTable

DrafterFactory = Callable[[str], Drafter]
ChanceFactory = Callable[[int], Chance]
AcceptRule = Callable[[RequestSampler, Draft, FloatArray], Acceptance]


class Engine:
    """Runs requests on one executor.

    ``drafters`` builds a drafter from its name; each name is built once, when a request first needs it.
    ``chance`` makes the source of randomness of a seed (tests enumerate theirs); ``accept_rule`` decides
    which drafted tokens are kept (``paceline check`` hands in wrong ones, which it must notice). ``pool``:
    the KV blocks; what is free in it may be borrowed between steps. ``watch`` is told of every verified
    draft and may name another drafter for new requests. ``costs``: what the guard counts by;
    ``draft_clock``, if there is one, corrects them. Not thread-safe: one caller.
    """

    def __init__(
        self,
        executor: Executor,
        decoder: TokenDecoder,
        eos_ids: Iterable[int],
        drafters: DrafterFactory,
        spec: SpecConfig,
        config: EngineConfig,
        chance: ChanceFactory = SeededChance,
        accept_rule: AcceptRule = accept,
        watch: DriftWatch | None = None,
        costs: CostTable = CONSERVATIVE_COSTS,
    ) -> None:
        self.executor, self.spec, self.config = executor, spec, config
        self._decoder, self._build_drafter = decoder, drafters
        self._drafters: dict[str, Drafter] = {}
        self._savings = Savings()
        self._chance = chance
        self.watch = watch or DriftWatch()
        self.costs = costs
        self.draft_clock: DraftClock | None = None
        self._accept = accept_rule
        self.pool = BlockPool(executor.num_blocks)
        self._scheduler = Scheduler(config, self.pool, executor.block_size)
        self._requests: dict[str, Request] = {}
        self._silenced: set[str] = set()  # drafters whose silencing was told of
        self._deadlines = Deadlines()
        self._numbers = count()
        self._clock = time.perf_counter
        self._rules = committing.CommitRules(frozenset(eos_ids), self._token_text, config.record_logit_hashes)

    @property
    def has_unfinished(self) -> bool:
        return bool(self._requests)

    @property
    def request_ids(self) -> tuple[str, ...]:
        """Requests that have not ended."""
        return tuple(self._requests)

    @property
    def running_ids(self) -> tuple[str, ...]:
        """Those of them that have a place in the forwards; the others wait."""
        return tuple(request.request_id for request in self._scheduler.running)

    @property
    def num_free_blocks(self) -> int:
        """KV blocks that no request holds."""
        return self.pool.num_free

    @property
    def load(self) -> EngineLoad:
        """How busy the engine is."""
        return self._scheduler.load

    def drafter(self, name: str) -> Drafter:
        """Return the drafter ``name``, built on first use. Raises ``DrafterError`` or ``ConfigError``."""
        if name not in self._drafters:
            self._drafters[name] = self._build_drafter(name)
        return self._drafters[name]

    def forget_drafters(self) -> None:
        """Drop all drafters and what they learnt; each is built anew when it is needed again."""
        if self._requests:
            raise ConfigError(f"{len(self._requests)} requests are running: finish or abort them first")
        self._drafters.clear()
        self._savings = Savings()

    def clear_prefix_cache(self) -> None:
        """Forget what was computed for requests that have ended."""
        if self._scheduler.prefix is not None:
            self._scheduler.prefix.clear()

    def add_request(
        self,
        request_id: str,
        prompt: Sequence[int],
        params: SamplingParams,
        terms: QueueTerms | None = None,
    ) -> None:
        """Queue a request. ``params.prediction`` must be token ids here.

        Raises ``PromptError``, ``ConfigError``, ``CacheFullError``, ``DrafterError`` or, when
        ``EngineConfig.max_queue`` requests wait already, ``QueueFullError``; nothing is queued then.
        """
        if request_id in self._requests:
            raise ConfigError(f"request_id={request_id!r} is running already: give another one")
        prompt = tuple(int(token) for token in prompt)
        check_request(prompt, params, self.config, self.executor)
        self._scheduler.check_queue(self._clock())
        name = self._drafter_name(params)
        drafter = self.drafter(name)
        request = self._new_request(request_id, prompt, params, terms or QueueTerms())
        request.drafter_name = name
        savings = self._savings if self.spec.is_guarded(name) else None
        start_drafting(request, drafter, self.config, self.costs, savings, len(self._requests))
        self._requests[request_id] = request
        self._deadlines.watch(request)
        self._scheduler.waiting.add(request)

    def abort(self, request_id: str) -> CompletionOutput | None:
        """End a request now and free what it holds; return what it has so far, ``None`` if it is unknown."""
        request = self._requests.get(request_id)
        if request is None:
            return None
        request.finish_reason = "abort"
        self._finish(request)
        return request.completion(0)

    def step(self) -> list[StepOutput]:
        """Run one forward and commit what it decided. Returns one entry per request that got tokens.

        When the forward or an acceptance raises, requests that were not settled keep nothing of this step and
        go on without drafts, because their drafters were not told what became of the last one.
        """
        outputs, start = self._end_late(), time.perf_counter()
        plans = self._scheduler.plan()
        if not plans and self._requests:
            raise CacheFullError("no request fits the KV cache although none runs: give borrowed blocks back")
        unsettled = deque(plans)
        try:
            drafts = propose_all(plans, self.executor.vocab_size, self.draft_clock)
            for plan, draft, verified in zip(plans, drafts, self._verify(plans, drafts), strict=True):
                if advance(plan):
                    outputs.append(self._settle(plan, draft, verified))
                else:
                    committing.observe_prompt(plan, verified)
                unsettled.popleft()
        finally:
            for plan in unsettled:
                plan.request.end_drafting()
            for plan in plans:
                plan.request.table.truncate(plan.request.computed)
                self._scheduler.remember(plan.request)
        if self.draft_clock is not None:
            hear(self.draft_clock, plans, time.perf_counter() - start)
        return outputs

    def check_integrity(self) -> None:
        """Between steps: raise ``AssertionError`` if a KV block or a request is lost, shared or idle."""
        self.pool.check(request.table.blocks for request in self._requests.values())
        if self._scheduler.prefix is not None:
            self._scheduler.prefix.check()
        queued = [*self._scheduler.running, *self._scheduler.waiting]
        assert sorted(map(id, queued)) == sorted(map(id, self._requests.values())), "a request is in no queue"
        for request in queued:
            needed = -(-request.computed // self.executor.block_size)
            assert len(request.table.blocks) == needed, "a request holds the wrong number of blocks"
            assert request.pending >= 1, "a running request must have a root"

    def _verify(self, plans: list[Plan], drafts: list[Draft]) -> list[Verified]:
        if not plans:
            return []
        start = time.perf_counter()
        answers = verify(self.executor, plans, drafts)
        seconds = time.perf_counter() - start
        for plan in plans:
            counts = plan.request.counts
            counts.started = counts.started or start
            counts.num_forwards += 1
            counts.verify_seconds += seconds
        self._scheduler.learn(plans, [len(draft) for draft in drafts], seconds)
        return answers

    def _settle(self, plan: Plan, draft: Draft, verified: Verified) -> StepOutput:
        """Accept, commit, settle the cache, tell the drafter, and report."""
        request, rows = plan.request, verified.logits
        root = request.tokens[-1]
        try:
            acceptance = self._accept(request.sampler, draft, rows)
            tokens = committing.commit(request, draft, acceptance, rows, self._rules)
        except GrammarError as error:  # its own affair: the others of the step go on
            return self._end_broken(request, error)
        if len(draft):
            committing.tell_watch(self.watch, request, draft, acceptance.path, len(tokens))
        if request.pacing is not None:
            kept = min(len(acceptance.path), len(tokens))
            position = request.num_output_tokens - len(tokens)
            request.pacing.settle(position, len(draft), kept, len(tokens))
            self._warn_of_silence(request)
        committing.observe(plan, draft, acceptance, tokens, root, verified)
        if request.is_running:
            committing.settle_cache(request, acceptance, self.executor)
        else:
            self._finish(request)
        return request.step_output(tokens, draft, acceptance.path)

    def _end_broken(self, request: Request, error: PacelineError) -> StepOutput:
        """End a request that cannot go on."""
        request.finish_reason = "abort"
        self._finish(request)
        return StepOutput(request.request_id, (), "", request.completion(0), error=error)

    def _finish(self, request: Request) -> None:
        self._scheduler.remember(request)
        self._scheduler.remove(request)
        del self._requests[request.request_id]
        self._deadlines.forget(request)
        request.release()

    def _end_late(self) -> list[StepOutput]:
        """End the requests that are past a limit of theirs."""
        late = self._deadlines.late(self._clock())
        for request in late:
            self._finish(request)
        return [request.step_output((), EMPTY_DRAFT, ()) for request in late]

    def _drafter_name(self, params: SamplingParams) -> str:
        if params.drafter is not None:
            return params.drafter
        if params.prediction and self.spec.drafter not in ("auto", "prediction"):
            return "prediction"
        return self.watch.in_place_of(self.spec.drafter, params.workload)

    def _new_request(
        self, request_id: str, prompt: tuple[int, ...], params: SamplingParams, terms: QueueTerms
    ) -> Request:
        seed = secrets.randbits(64) if params.seed is None else params.seed
        rule = resolve_acceptance(self.spec.acceptance, params)
        return Request(
            request_id,
            prompt,
            params,
            length_limit(prompt, params, self.config),
            self._draft_limit(params),
            RequestSampler(
                params, prompt, self._rules.eos_ids, rule, self._chance(seed), self.executor.vocab_size
            ),
            TextStream(
                self._decoder,
                params.stop_strings,
                params.include_stop_str_in_output,
                params.skip_special_tokens,
            ),
            BlockTable(self.pool, self.executor.block_size),
            terms,
            next(self._numbers),
        )

    def _draft_limit(self, params: SamplingParams) -> int:
        if params.num_draft_tokens is not None:
            return params.num_draft_tokens
        if self.spec.num_draft_tokens is None:
            return SpecConfig(drafter=self._drafter_name(params)).draft_limit
        return self.spec.num_draft_tokens

    def _warn_of_silence(self, request: Request) -> None:
        """Tell once for each drafter that it loses time; ``auto``, made to fall silent, is not told of."""
        name, pacing = request.drafter_name, request.pacing
        if pacing is None or not pacing.guard.is_silenced or name in self._silenced or name == "auto":
            return
        self._silenced.add(name)
        logger.warning(
            "drafter %s costs more time than it saves: request %s goes on almost without drafts; said once",
            name,
            request.request_id,
        )

    def _token_text(self, token: int) -> str:
        return self._decoder.token_bytes(token, skip_special=False).decode("utf-8", "replace")
