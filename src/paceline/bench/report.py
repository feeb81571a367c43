"""Results for reading (rich tables) and for keeping (JSON)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from paceline.bench.datasets import BenchPrompt
from paceline.bench.environment import Environment
from paceline.bench.means import mean_over_workloads
from paceline.bench.records import VARIED_SHARE, RunResult, Summary
from paceline.bench.runner import BenchSettings
from paceline.bench.tables import cost_per_million_tokens, speed_table, wait_table
from paceline.theory.cost_table import CostTable

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run was made with, beside its settings.

    ``prompts_digest``: of all prompts asked (see :func:`prompts_digest`). ``model_bytes``: size of its files.
    ``costs``: the cost table of the prediction. ``price_per_hour``: what the machine costs, in any currency.
    """

    environment: Environment
    prompts_digest: str = ""
    model_bytes: int = 0
    costs: CostTable | None = None
    price_per_hour: float | None = None


def prompts_digest(prompts: Sequence[BenchPrompt]) -> str:
    """Return a digest of the conversations, in their order: equal for equal questions."""
    text = json.dumps([asdict(prompt) for prompt in prompts], ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def as_json(
    results: Sequence[RunResult], settings: Sequence[BenchSettings], facts: RunFacts
) -> dict[str, Any]:
    """Return what ``--json`` writes.

    ``settings``: one for each batch size and temperature; written is the first one, with all ``batches`` and
    ``temperatures``. Each entry of ``runs`` holds the fields of :class:`RunResult`, those of the summary of
    all replies (its latencies each under a name of their own), under ``varied`` those of the summary of the
    varied ones (null when there are none), and under ``categories`` one summary for each category of a
    workload made of several. ``samples`` stands under all replies only. ``mean_over_workloads`` has one entry
    for each drafter, batch size and temperature: the fields of :class:`~paceline.bench.means.Mean` for all
    replies, and under ``varied`` for the varied ones.
    """
    return {
        "kind": "offline",
        "settings": {
            **asdict(settings[0]),
            "batches": list(dict.fromkeys(each.batch for each in settings)),
            "temperatures": list(dict.fromkeys(each.temperature for each in settings)),
        },
        "environment": asdict(facts.environment),
        "model_bytes": facts.model_bytes,
        "prompts_digest": facts.prompts_digest,
        "price_per_hour": facts.price_per_hour,
        "cost_table": None if facts.costs is None else facts.costs.to_json(),
        "varied_share": VARIED_SHARE,
        "runs": [_run_json(result, facts.price_per_hour) for result in results],
        "mean_over_workloads": [
            {
                "drafter": mean.drafter,
                "model": mean.model,
                "batch": mean.batch,
                "temperature": mean.temperature,
                **asdict(mean.all_replies),
                "varied": None if mean.varied_replies is None else asdict(mean.varied_replies),
            }
            for mean in mean_over_workloads(results)
        ],
    }


def _run_json(result: RunResult, price: float | None) -> dict[str, Any]:
    summary, varied = result.all_replies, result.varied_replies
    return {
        "workload": result.workload,
        "drafter": result.drafter,
        "model": result.model,
        "batch": result.batch,
        "temperature": result.temperature,
        **_summary_json(summary, price),
        "samples": summary.samples.to_json(),
        "varied": None if varied is None else _summary_json(varied, price),
        "categories": {name: _summary_json(part, price) for name, part in result.categories.items()},
    }


def _summary_json(summary: Summary, price: float | None) -> dict[str, Any]:
    plain = {f.name: getattr(summary, f.name) for f in fields(summary)}
    del plain["samples"], plain["latencies"]
    cost = None if price is None else cost_per_million_tokens(price, summary.tokens_per_s)
    return {**plain, **asdict(summary.latencies), "cost_per_million_tokens": cost}


def result_tables(results: Sequence[RunResult], price_per_hour: float | None = None) -> list[Table]:
    """Return two tables for each workload, batch size and temperature: speed, and what a user waits for."""
    tables = []
    for case in dict.fromkeys((r.batch, r.temperature, r.workload) for r in results):
        mine = [r for r in results if (r.batch, r.temperature, r.workload) == case]
        title = case_title(*case)
        tables += [speed_table(title, mine), wait_table(title, mine, price_per_hour)]
    return tables


def case_title(batch: int, temperature: float, workload: str) -> str:
    """Return the name of a table; what is as usual (alone, greedy) goes without saying."""
    parts = [workload]
    if batch > 1:
        parts.append(f"batch {batch}")
    if temperature:
        parts.append(f"temperature {temperature:g}")
    return " · ".join(parts)
