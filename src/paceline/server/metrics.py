"""Counters for Prometheus, under ``paceline:`` and, on request, under vLLM's names too.

Counts of speculation are added when a request ends, so that the sums over replies equal the counters; those
of requests that were cut short are in the counters as well, because their work was done.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from paceline.engine.outputs import CompletionOutput, RequestMetrics, StepOutput
from paceline.records import FinishReason
from paceline.server.job import Job, Part

if TYPE_CHECKING:
    from paceline.server.engine_thread import EngineThread

PREFIX = "paceline:"
VLLM_PREFIX = "vllm:"
VLLM_NAMES = frozenset(
    {
        "spec_decode_num_drafts",
        "spec_decode_num_draft_tokens",
        "spec_decode_num_accepted_tokens",
        "spec_decode_num_accepted_tokens_per_pos",
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "prefix_cache_queries",
        "prefix_cache_hits",
        "num_preemptions",
        "prompt_tokens",
        "generation_tokens",
        "request_success",
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "request_time_per_output_token_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prompt_tokens",
        "request_generation_tokens",
    }
)
"""Ours that mean what vLLM's of the same name mean."""
MAX_WORKLOADS = 32
"""Labels are the clients' words: so many are counted apart, the rest as ``other``."""

COMMON_ERRORS = ("400", "401", "429", "500", "503")
"""Counted from zero on: the first increase of a series that was not there before is lost on Prometheus."""

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter that tells when it was made, and nobody reads

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)
_LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
_TOKENS = tuple(float(2**power) for power in range(17))


class Metrics:
    """One registry per server, so that several live in one process."""

    def __init__(self, model_name: str, thread: EngineThread) -> None:
        self.registry = CollectorRegistry()
        self._labels = {"model_name": model_name, "engine": "0"}
        self._thread = thread
        self._workloads: set[str] = set()
        self._prefix_seen = (0, 0)
        self._num_tokens = self._tokens_seen = 0
        self._alarms_seen = 0
        self._make_counters()
        self._make_histograms()
        self._make_gauges()
        self._start_at_zero()
        ProcessCollector(registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, text, (*self._labels, *labels), registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        family = Histogram(PREFIX + name, text, tuple(self._labels), registry=self.registry, buckets=buckets)
        return family.labels(**self._labels)

    def _gaps(self, name: str, text: str) -> _Gaps:
        gaps = _Gaps(PREFIX + name, text, self._labels)
        self.registry.register(gaps)
        return gaps

    def _plain(self, name: str, text: str) -> Counter:
        return self._counter(name, text).labels(**self._labels)

    def _make_counters(self) -> None:
        self._prompt_tokens = self._plain("prompt_tokens", "Prompt tokens of requests that ended.")
        self._tokens = self._plain("generation_tokens", "Output tokens.")
        self._ended = self._counter("request_success", "Requests that ended.", "finished_reason")
        self._errors = self._counter("request_errors", "Requests answered with an error.", "code")
        self._drafts = self._plain("spec_decode_num_drafts", "Verify steps with at least one drafted token.")
        self._drafted = self._plain("spec_decode_num_draft_tokens", "Tokens proposed.")
        self._accepted = self._plain("spec_decode_num_accepted_tokens", "Draft tokens kept.")
        self._accepted_at = self._counter(
            "spec_decode_num_accepted_tokens_per_pos", "Drafts kept at depth position + 1.", "position"
        )
        self._steps = self._plain("verify_steps", "Forwards that committed tokens, summed over requests.")
        self._draft_seconds = self._plain("draft_seconds", "Seconds in drafters, summed over requests.")
        self._verify_seconds = self._plain(
            "verify_seconds", "Seconds of forwards, summed over the requests with rows in them."
        )
        self._preemptions = self._plain("num_preemptions", "Times a request gave up its cache.")
        self._prefix_queries = self._plain("prefix_cache_queries", "Tokens looked for in the prefix cache.")
        self._prefix_hits = self._plain("prefix_cache_hits", "Tokens found in the prefix cache.")
        self._alarms = self._plain("drift_alarms", "Times acceptance fell below its baseline.")
        for name in ("generation_tokens", "num_draft_tokens", "num_accepted_tokens"):
            counter = self._counter(f"workload_{name}", f"As {name}, by the requests' label.", "workload")
            setattr(self, f"_workload_{name}", counter)

    _workload_generation_tokens: Counter
    _workload_num_draft_tokens: Counter
    _workload_num_accepted_tokens: Counter

    def _make_histograms(self) -> None:
        make = self._histogram
        self._ttft = make("time_to_first_token_seconds", "Arrival to first token.", _LONG)
        self._token_gap = self._gaps(
            "inter_token_latency_seconds", "Time between steps ÷ tokens of the later one, per token."
        )
        self._step_gap = self._gaps("inter_step_latency_seconds", "Time between steps of a request.")
        self._per_token = make(
            "request_time_per_output_token_seconds", "First token to last ÷ tokens between.", _SHORT
        )
        self._e2e = make("e2e_request_latency_seconds", "Arrival to end.", _LONG)
        self._queued = make("request_queue_time_seconds", "Arrival to first forward.", _LONG)
        self._prompt_sizes = make("request_prompt_tokens", "Prompt tokens of a request.", _TOKENS)
        self._reply_sizes = make("request_generation_tokens", "Output tokens of a request.", _TOKENS)

    def _make_gauges(self) -> None:
        thread = self._thread
        gauges = {
            "num_requests_running": (
                "Requests with a place in the forwards.",
                lambda: thread.load.num_running,
            ),
            "num_requests_waiting": ("Requests that wait.", lambda: thread.load.num_waiting),
            "kv_cache_usage_perc": (
                "Share of KV blocks held by requests, 0 to 1.",
                lambda: 1.0 - thread.load.num_free_blocks / thread.load.num_blocks,
            ),
            "engine_step_seconds": ("Age of the step that runs now.", lambda: thread.step_seconds),
        }
        for name, (text, read) in gauges.items():
            gauge = Gauge(PREFIX + name, text, tuple(self._labels), registry=self.registry)
            gauge.labels(**self._labels).set_function(read)

    def _start_at_zero(self) -> None:
        for reason in get_args(FinishReason):
            self._ended.labels(**self._labels, finished_reason=reason)
        for code in COMMON_ERRORS:
            self._errors.labels(**self._labels, code=code)

    def text(self, compat: str) -> bytes:
        """Return the exposition. ``compat`` ``vllm`` adds vLLM's names."""
        self._follow_load()
        ours = generate_latest(self.registry)
        if compat != "vllm":
            return ours
        also = CollectorRegistry()
        also.register(_VllmNames(self.registry))
        return ours + generate_latest(also)

    def _follow_load(self) -> None:
        """Take over what the engine counts itself, and what is counted for each piece of each stream."""
        num_tokens = self._num_tokens  # goes on growing meanwhile
        self._tokens.inc(num_tokens - self._tokens_seen)
        self._tokens_seen = num_tokens
        load = self._thread.load
        queries, hits = self._prefix_seen
        self._prefix_queries.inc(load.num_prefix_queries - queries)
        self._prefix_hits.inc(load.num_prefix_hits - hits)
        self._prefix_seen = (load.num_prefix_queries, load.num_prefix_hits)
        num_alarms = self._thread.num_alarms
        self._alarms.inc(num_alarms - self._alarms_seen)
        self._alarms_seen = num_alarms

    def count_error(self, status: int) -> None:
        """Count an answer that is no reply."""
        self._errors.labels(**self._labels, code=str(status)).inc()

    def count_step(self, job: Job, part: Part, step: StepOutput, now: float) -> None:
        """Count the tokens of one step, on the engine's thread, as they leave it."""
        number = len(step.token_ids)
        if number:
            self._num_tokens += number
            if part.last_step is None:
                self._ttft.observe(now - job.arrived)
            else:
                gap = now - part.last_step
                self._step_gap.observe(gap, 1)
                self._token_gap.observe(gap / number, number)
            part.last_step = now
        if step.completion is not None:
            self.count_end(step.completion, job.workload, now - job.arrived)

    def count_end(self, reply: CompletionOutput, workload: str | None, seconds: float | None) -> None:
        """Count a request that ended. ``seconds``: how long it took, ``None`` where nobody waited for it."""
        metrics = reply.metrics
        reason = reply.finish_reason or "abort"
        self._ended.labels(**self._labels, finished_reason=reason).inc()
        self._prompt_tokens.inc(metrics.num_prompt_tokens)
        self._preemptions.inc(metrics.num_preemptions)
        self._count_speculation(metrics)
        if workload is not None:
            self._count_workload(metrics, workload)
        self._prompt_sizes.observe(metrics.num_prompt_tokens)
        self._reply_sizes.observe(metrics.num_output_tokens)
        self._queued.observe(max(0.0, metrics.queue_seconds))
        if seconds is not None:
            self._e2e.observe(seconds)
        if metrics.num_output_tokens > 1:
            spent = metrics.total_seconds - metrics.ttft_seconds
            self._per_token.observe(spent / (metrics.num_output_tokens - 1))

    def _count_speculation(self, metrics: RequestMetrics) -> None:
        self._steps.inc(metrics.num_verify_steps)
        self._drafts.inc(metrics.num_drafts)
        self._drafted.inc(metrics.num_draft_tokens)
        self._accepted.inc(metrics.num_accepted_tokens)
        for position, count in enumerate(metrics.accepted_at):
            self._accepted_at.labels(**self._labels, position=str(position)).inc(count)
        self._draft_seconds.inc(metrics.draft_seconds)
        self._verify_seconds.inc(metrics.verify_seconds)

    def _count_workload(self, metrics: RequestMetrics, workload: str) -> None:
        if workload not in self._workloads and len(self._workloads) >= MAX_WORKLOADS:
            workload = "other"
        self._workloads.add(workload)
        labels = {**self._labels, "workload": workload}
        self._workload_generation_tokens.labels(**labels).inc(metrics.num_output_tokens)
        self._workload_num_draft_tokens.labels(**labels).inc(metrics.num_draft_tokens)
        self._workload_num_accepted_tokens.labels(**labels).inc(metrics.num_accepted_tokens)


class _Gaps(Collector):
    """A histogram of short times that costs a stream next to nothing: the library's takes several locks
    and a walk along the bounds for each token.
    """

    def __init__(self, name: str, text: str, labels: dict[str, str]) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._counts = [0] * (len(_SHORT) + 1)
        self._sum = 0.0

    def observe(self, seconds: float, times: int) -> None:
        """Count ``seconds``, so many times over; only the engine's thread does."""
        self._counts[bisect_left(_SHORT, seconds)] += times
        self._sum += seconds * times

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=tuple(self._labels))
        bounds = [*map(str, _SHORT), "+Inf"]
        buckets = list(zip(bounds, accumulate(tuple(self._counts)), strict=True))
        family.add_metric(tuple(self._labels.values()), buckets, self._sum)
        yield family


class _VllmNames(Collector):
    """The same figures again under vLLM's names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for family in self._registry.collect():
            if family.name.removeprefix(PREFIX) not in VLLM_NAMES:
                continue
            twin = Metric(_renamed(family.name), family.documentation, family.type)
            twin.samples = [sample._replace(name=_renamed(sample.name)) for sample in family.samples]
            yield twin


def _renamed(name: str) -> str:
    return VLLM_PREFIX + name.removeprefix(PREFIX)
