"""How long a step can take when every core is also wanted by somebody else.

    python benchmarks/busy_cores.py [--model NAME] [--steps 200] [--json OUT]

Starts one process per core that does nothing but compute, then times one-row forwards on as many threads.
A barrier that spun for ever would burn the time slice of the very thread it waits for, and some steps would
take many times the usual one. Prints slowest ÷ median; the exit code is 1 when that is 10 or more.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from paceline.executors.base import ForwardBatch
from paceline.executors.cpu import CpuExecutor, default_threads
from paceline.models.loading import load_model_files

LIMIT = 10.0
"""Slowest ÷ median at which waiting counts as broken."""
WARM_UP = 10


def _compute(stop_with: int) -> None:
    """Keep one core busy until the parent is gone."""
    while os.getppid() == stop_with:
        sum(range(200_000))


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Run ``count`` processes that never pause, for as long as the block lasts."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_compute, args=(os.getpid(),), daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    time.sleep(1.0)  # until they really compute
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


def step_seconds(executor: CpuExecutor, steps: int) -> list[float]:
    """Return the time of each of ``steps`` greedy steps, after a few that are not counted."""
    seconds: list[float] = []
    token = 1
    for position in range(WARM_UP + steps):
        start = time.perf_counter()
        logits = executor.forward(ForwardBatch.chain([token], position, range(executor.num_blocks), 1))
        seconds.append(time.perf_counter() - start)
        token = int(logits[0].argmax())
    return seconds[WARM_UP:]


def measure(model: str, steps: int, threads: int) -> dict[str, float]:
    """Return step times in milliseconds, with idle cores and with busy ones."""
    num_blocks = -(-(WARM_UP + steps) // CpuExecutor.block_size)
    with load_model_files(model) as files:
        executor = CpuExecutor.load(files.spec, files.source, num_blocks=num_blocks, num_threads=threads)
    idle = 1e3 * np.array(step_seconds(executor, steps))
    with busy_processes(os.cpu_count() or 1):
        busy = 1e3 * np.array(step_seconds(executor, steps))
    return {
        "idle_median_ms": float(np.median(idle)),
        "idle_slowest_ms": float(idle.max()),
        "busy_median_ms": float(np.median(busy)),
        "busy_slowest_ms": float(busy.max()),
        "busy_slowest_over_median": float(busy.max() / np.median(busy)),
        "threads": threads,
        "steps": steps,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m", help="name or path of a model")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    figures = measure(arguments.model, arguments.steps, arguments.threads)
    for name, value in figures.items():
        print(f"{name:26s} {value:8.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))
    return int(figures["busy_slowest_over_median"] >= LIMIT)


if __name__ == "__main__":
    sys.exit(main())
