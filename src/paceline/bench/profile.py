"""What a forward pass costs: its time for 1 … 16 rows, the memory it moves, each operator's share."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.bench.environment import Environment, describe_environment
from paceline.errors import ConfigError
from paceline.executors.base import ForwardBatch
from paceline.executors.cpu import CpuExecutor
from paceline.native import _core
from paceline.profiling.timing import interleaved

if TYPE_CHECKING:
    from pathlib import Path

    from paceline.models.loading import Quant

PROMPT_ROWS = 512
_MEMORY_BYTES = 256 << 20
_WARM_UP = 3


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """Measured costs of one model on one machine.

    ``ms[M]``: median milliseconds of a forward with M rows and the logits of every row, behind ``context``
    positions; ``spread_ms[M]``: its 10th and 90th percentile. ``r[M]``: ms[M] ÷ ms[1]. ``prompt_ms``: a
    prompt of 512 tokens from nothing, logits of the last. ``weight_bytes``: what one forward reads.
    ``bytes_per_second`` of a one-row forward and ``read_bandwidth`` of the machine, on the same threads.
    ``operator_shares[M]``: each operator's share of the time of M rows.
    """

    model: str
    context: int
    repeats: int
    ms: Mapping[int, float]
    spread_ms: Mapping[int, tuple[float, float]]
    r: Mapping[int, float]
    prompt_ms: float
    weight_bytes: int
    bytes_per_second: float
    read_bandwidth: float
    operator_shares: Mapping[int, Mapping[str, float]]
    environment: Environment

    def to_json(self) -> dict[str, Any]:
        """Return plain data for ``json.dump``; row counts become strings."""
        plain = asdict(self)
        for name in ("ms", "spread_ms", "r", "operator_shares"):
            plain[name] = {str(rows): value for rows, value in plain[name].items()}
        return plain


def profile_model(
    model: str | Path,
    *,
    rows: tuple[int, ...] = tuple(range(1, 17)),
    context: int = 128,
    repeats: int = 40,
    threads: int | None = None,
    quant: Quant = "none",
    progress: Callable[[float], None] | None = None,
) -> ProfileReport:
    """Measure a model's forward passes; row counts are taken in turns, so that drifts hit all alike.

    ``progress`` is told the share done. Raises ``ConfigError`` for settings out of range, and as
    ``load_model_files`` for the model.
    """
    from paceline.models.loading import load_model_files

    _check(rows, context, repeats)
    with load_model_files(model, quant=quant) as files:
        slots = max(context + max(rows), PROMPT_ROWS)
        if slots > files.spec.max_context:
            raise ConfigError(
                f"context={context} does not fit: {files.spec.name} has {files.spec.max_context} positions"
            )
        blocks = -(-slots // CpuExecutor.block_size)
        executor = CpuExecutor.load(files.spec, files.source, num_blocks=blocks, num_threads=threads)
    return _measure(executor, str(model), rows, context, repeats, progress or (lambda share: None))


def _check(rows: tuple[int, ...], context: int, repeats: int) -> None:
    if not rows or min(rows) < 1 or 1 not in rows:
        raise ConfigError(f"rows={rows!r} must be positive and contain 1, to which all are compared")
    if context < 0:
        raise ConfigError(f"context={context} must not be negative")
    if repeats < 3:
        raise ConfigError(f"repeats={repeats} must be at least 3, for there to be a median and a spread")


def _measure(
    executor: CpuExecutor,
    model: str,
    rows: tuple[int, ...],
    context: int,
    repeats: int,
    progress: Callable[[float], None],
) -> ProfileReport:
    length = max(context + max(rows), PROMPT_ROWS)
    tokens = np.random.default_rng(0).integers(0, executor.vocab_size, length, dtype=np.int32)
    blocks = range(executor.num_blocks)
    prompt = ForwardBatch.chain(tokens[:PROMPT_ROWS], 0, blocks, num_logits=1)
    prompt_jobs = {"prompt": lambda: executor.forward(prompt)}
    prompt_times = interleaved(prompt_jobs, 1 + max(3, repeats // 10))["prompt"][1:]
    if context:
        executor.forward(ForwardBatch.chain(tokens[:context], 0, blocks, num_logits=1))
    batches = {m: ForwardBatch.chain(tokens[context : context + m], context, blocks, m) for m in rows}
    jobs = {m: partial(executor.forward, batch) for m, batch in batches.items()}
    runs = interleaved(jobs, _WARM_UP + repeats, progress=progress)
    times = {m: values[_WARM_UP:] for m, values in runs.items()}
    medians = {m: statistics.median(values) for m, values in times.items()}
    return ProfileReport(
        model=model,
        context=context,
        repeats=repeats,
        ms={m: 1e3 * value for m, value in medians.items()},
        spread_ms={m: _spread(values) for m, values in times.items()},
        r={m: value / medians[1] for m, value in medians.items()},
        prompt_ms=1e3 * statistics.median(prompt_times),
        weight_bytes=executor.weight_bytes,
        bytes_per_second=executor.weight_bytes / medians[1],
        read_bandwidth=read_bandwidth(executor),
        operator_shares={m: _operator_shares(executor, batches[m]) for m in rows if m in (1, 8)},
        environment=describe_environment(executor.num_threads, executor.path),
    )


def _spread(seconds: list[float]) -> tuple[float, float]:
    low, high = np.quantile(seconds, (0.1, 0.9))
    return 1e3 * float(low), 1e3 * float(high)


def _operator_shares(executor: CpuExecutor, batch: ForwardBatch) -> dict[str, float]:
    executor.decoder.profile(True)
    executor.decoder.take_profile()
    for _ in range(10):
        executor.forward(batch)
    spent: dict[str, float] = executor.decoder.take_profile()
    executor.decoder.profile(False)
    total = sum(spent.values())
    return {name: seconds / total for name, seconds in spent.items()}


def read_bandwidth(executor: CpuExecutor) -> float:
    """Return the best of five readings of 256 MiB on the executor's threads, in bytes per second."""
    memory = np.ones(_MEMORY_BYTES, dtype=np.uint8)
    return _MEMORY_BYTES / min(_core.read_seconds(executor.pool, memory) for _ in range(5))
