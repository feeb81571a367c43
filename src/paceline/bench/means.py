"""One figure for several workloads: their mean, where each counts the same however many prompts it has."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.bench.records import RunResult, Summary


@dataclass(frozen=True, slots=True)
class Mean:
    """Arithmetic means of the figures of ``num_workloads`` workloads.

    ``min_speedup``: the lowest of their speed-ups, which ``slowest_workload`` has.
    """

    num_workloads: int
    tokens_per_step: float
    speedup: float
    min_speedup: float
    slowest_workload: str


@dataclass(frozen=True, slots=True)
class DrafterMean:
    """One drafter over all workloads of a run; ``varied_replies``: over those that have varied replies."""

    drafter: str
    model: str
    all_replies: Mean
    varied_replies: Mean | None
    batch: int = 1
    temperature: float = 0.0


def mean_over_workloads(results: Sequence[RunResult]) -> list[DrafterMean]:
    """Return one mean for each drafter, batch size and temperature, in the order of the results."""
    means = []
    for case in dict.fromkeys((r.batch, r.temperature, r.drafter) for r in results):
        mine = [r for r in results if (r.batch, r.temperature, r.drafter) == case]
        batch, temperature, drafter = case
        varied = {r.workload: r.varied_replies for r in mine if r.varied_replies is not None}
        means.append(
            DrafterMean(
                drafter=drafter,
                model=mine[0].model,
                all_replies=_mean({result.workload: result.all_replies for result in mine}),
                varied_replies=_mean(varied) if varied else None,
                batch=batch,
                temperature=temperature,
            )
        )
    return means


def _mean(summaries: Mapping[str, Summary]) -> Mean:
    slowest = min(summaries, key=lambda workload: summaries[workload].speedup)
    return Mean(
        num_workloads=len(summaries),
        tokens_per_step=statistics.fmean(summary.tokens_per_step for summary in summaries.values()),
        speedup=statistics.fmean(summary.speedup for summary in summaries.values()),
        min_speedup=summaries[slowest].speedup,
        slowest_workload=slowest,
    )
