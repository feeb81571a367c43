"""Result files of every kind and age, with figures that were made up once and follow simple rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WORKLOADS = ("chat", "code", "math", "summarize")
DRAFTERS = ("none", "ngram", "eagle3", "auto")
BATCHES = (1, 8, 32)
GAINS = {"none": 1.0, "ngram": 1.15, "eagle3": 1.6, "auto": 1.85}
ENVIRONMENT = {
    "commit": "0123456789ab",
    "cpu": "Some CPU",
    "cores": 2,
    "threads": 2,
    "versions": {"paceline": "0.1.0"},
}
RATES = {"ngram": [0.5, 0.3, 0.2], "eagle3": [0.72, 0.5, 0.33, 0.2], "auto": [0.75, 0.55, 0.4, 0.3]}


def percentiles(median: float) -> dict[str, float]:
    return {"p50": median, "p95": 1.8 * median, "p99": 2.6 * median, "mean": 1.1 * median}


def old_run(workload: str, drafter: str, number: int) -> dict[str, Any]:
    """Return a run as files had it before there were batches and intervals."""
    gain = 1.0 if drafter == "none" else GAINS[drafter] + 0.2 * (number - 1)
    return {
        "workload": workload,
        "drafter": drafter,
        "model": "Tiny",
        "num_replies": 8,
        "tokens": 1000,
        "seconds": 4.0 / gain,
        "tokens_per_s": 250.0 * gain,
        "tokens_per_s_spread": [240.0 * gain, 262.0 * gain],
        "tokens_per_step": 1.0 + gain,
        "acceptance_rate": None if drafter == "none" else 0.4,
        "acceptance_rate_at": [max(0.0, rate - 0.05 * number) for rate in RATES.get(drafter, ())],
        "identical_share": 1.0,
        "distinct_4gram_share": 0.9,
        "speedup": gain,
        "varied": None,
        "categories": {},
    }


def new_run(workload: str, drafter: str, number: int, batch: int) -> dict[str, Any]:
    run = old_run(workload, drafter, number)
    gain = 1.0 + (run["speedup"] - 1.0) / batch**0.5
    speed = 250.0 * gain * batch**0.7
    itl = batch / speed
    return {
        **run,
        "batch": batch,
        "temperature": 0.0,
        "speedup": gain,
        "speedup_ci": [gain - 0.05, gain + 0.07],
        "tokens_per_s": speed,
        "tokens_per_s_spread": [0.97 * speed, 1.05 * speed],
        "predicted_speedup": None if drafter == "none" else gain * (1.04 if number % 2 else 0.97),
        "peak_memory_bytes": 300_000_000,
        "cost_per_million_tokens": None,
        "ttft_s": percentiles(0.02 * batch),
        "tpot_s": percentiles(itl),
        "itl_token_s": percentiles(itl),
        "itl_step_s": percentiles(itl * run["tokens_per_step"]),
    }


def cost_table() -> dict[str, Any]:
    rows = [*range(1, 17), 24, 32]
    return {
        "verify": [[m, 1.0 + 0.02 * (m - 1) + 0.004 * (m - 1) ** 1.6] for m in rows],
        "row_seconds": 0.004,
        "step_seconds": 0.0002,
        "draft_costs": {
            "ngram": {"fixed": 0.01, "per_level": 0.0, "per_node": 0.0},
            "eagle3": {"fixed": 0.05, "per_level": 0.06, "per_node": 0.0},
        },
        "context": 128,
        "per_sequence_token": 0.0,
        "per_row_token": 0.0,
    }


def offline(batches: tuple[int, ...] = BATCHES) -> dict[str, Any]:
    return {
        "kind": "offline",
        "settings": {
            "drafters": ["auto"],
            "max_tokens": 128,
            "batches": list(batches),
            "temperatures": [0.0],
        },
        "environment": ENVIRONMENT,
        "cost_table": cost_table(),
        "runs": [
            new_run(workload, drafter, number, batch)
            for batch in batches
            for number, workload in enumerate(WORKLOADS)
            for drafter in DRAFTERS
        ],
    }


def old_offline() -> dict[str, Any]:
    return {
        "settings": {"drafters": ["auto"], "max_tokens": 128, "temperature": 0.0},
        "environment": ENVIRONMENT,
        "runs": [
            old_run(workload, drafter, number)
            for number, workload in enumerate(WORKLOADS)
            for drafter in DRAFTERS
        ],
    }


def load_point(concurrency: int | None, rate: float | None) -> dict[str, Any]:
    width = concurrency or 4
    return {
        "concurrency": concurrency,
        "rate": rate,
        "num_requests": 100,
        "num_ok": 98,
        "errors": {"timeout": 2},
        "error_examples": {"timeout": "<b>late</b>"},
        "tokens_per_s": 200.0 * width**0.6,
        "ttft_s": percentiles(0.03 * width),
        "tpot_s": percentiles(0.006),
        "itl_token_s": percentiles(0.006),
        "itl_step_s": percentiles(0.014),
        "e2e_s": percentiles(0.9),
        "goodput": {"objective": {"ttft_s": 0.2}, "requests_per_s": 3.0, "share": 0.8},
        "speculation": {"source": "metrics", "num_draft_tokens": 300, "acceptance_rate_at": [0.8, 0.6, 0.4]},
    }


def load() -> dict[str, Any]:
    points = [load_point(c, None) for c in BATCHES] + [load_point(None, r) for r in (1.0, 2.0)]
    return {
        "kind": "load",
        "endpoint": "http://127.0.0.1:8000/v1/chat/completions",
        "server": {"dialect": "vllm", "model": "tiny"},
        "settings": {"max_tokens": 128},
        "environment": ENVIRONMENT,
        "points": points,
        "notes": ["this client fell behind its schedule"],
    }


def old_profile() -> dict[str, Any]:
    ms = {str(m): 4.0 * (1 + 0.05 * (m - 1)) - (0.3 if m == 5 else 0.0) for m in range(1, 17)}
    return {"model": "Tiny", "context": 128, "ms": ms, "r": {m: v / 4.0 for m, v in ms.items()}}


def stored_profile() -> dict[str, Any]:
    return {"format": 1, "key": {"cpu": "Some CPU"}, "model_name": "Tiny", "table": cost_table()}


def write(folder: Path, **files: dict[str, Any]) -> list[Path]:
    """Write each file as NAME.json; return their paths."""
    paths = []
    for name, plain in files.items():
        paths.append(folder / f"{name}.json")
        paths[-1].write_text(json.dumps(plain), encoding="utf-8")
    return paths
