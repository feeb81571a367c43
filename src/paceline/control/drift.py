"""Has acceptance fallen? A sequential test of judged positions against a baseline.

One-sided CUSUM (Page 1954) on the log-likelihood ratio of "the baseline still holds" (acceptance p0 at each
depth) against "it fell to ``min_ratio`` of it" (p1): an accepted position adds log(p1 / p0) < 0, a refused
one log((1 - p1) / (1 - p0)) > 0, the sum never falls below 0, and an alarm is raised when it reaches
log(1 / ``false_alarm_rate``). While acceptance is p0 or more, the ratio is a supermartingale from every
starting point, so by Ville's inequality and a union bound the chance of an alarm within n positions is at
most n · ``false_alarm_rate``.

Positions of one request are not independent: a request goes well or badly as a whole. The increments are
divided by the *dispersion*, the variance between requests ÷ the binomial one (a quasi-likelihood), which is
measured with the baseline.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from paceline.config import Settings, check_float, check_int, check_names
from paceline.control.acceptance_log import MAX_DEPTH, Judged, Tally
from paceline.errors import ConfigError

BLOCK_POSITIONS = 128
"""Positions of one request that count as one unit: a long reply wanders from topic to topic."""
MIN_BLOCKS = 20
"""Fewer units say too little of the variance between them."""
_OPEN_BLOCKS = 256
_SHRINK = 20.0
"""Positions that the mean over all depths is worth at each depth: deep ones are rare."""
_MARGIN = 2.0
"""Standard errors by which a measured baseline is lowered before it is tested against."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What acceptance used to be: ``accepted`` of ``tried`` judged positions at each depth.

    ``dispersion``: variance between requests ÷ that of independent positions, at least 1.
    """

    accepted: tuple[int, ...]
    tried: tuple[int, ...]
    dispersion: float = 1.0

    def __post_init__(self) -> None:
        if not self.tried or len(self.accepted) != len(self.tried) or len(self.tried) > MAX_DEPTH:
            raise ConfigError(
                f"baseline: accepted has {len(self.accepted)} entries and tried {len(self.tried)}: give one "
                f"of each per depth, 1 to {MAX_DEPTH}"
            )
        for depth, (accepted, tried) in enumerate(zip(self.accepted, self.tried, strict=True)):
            check_int(f"baseline: tried[{depth}]", tried, 0)
            check_int(f"baseline: accepted[{depth}]", accepted, 0, tried)
        if not sum(self.tried):
            raise ConfigError("baseline: tried is 0 at every depth: nothing was measured")
        check_float("baseline: dispersion", self.dispersion, 1.0, math.inf)

    @property
    def rate(self) -> float:
        """Accepted ÷ judged positions."""
        return sum(self.accepted) / sum(self.tried)

    @property
    def rates(self) -> tuple[float, ...]:
        """Acceptance at each depth, drawn a little towards the mean, within 0.01 … 0.99."""
        mean = self.rate
        shrunk = (
            (a + _SHRINK * mean) / (t + _SHRINK) for a, t in zip(self.accepted, self.tried, strict=True)
        )
        return tuple(min(0.99, max(0.01, rate)) for rate in shrunk)

    @property
    def relative_error(self) -> float:
        """Two standard errors of ``rate``, as a share of it; at most 1."""
        rate, tried = self.rate, sum(self.tried)
        if rate <= 0.0:
            return 1.0
        return min(1.0, _MARGIN * math.sqrt(self.dispersion * rate * (1.0 - rate) / tried) / rate)


@dataclass(frozen=True, slots=True)
class DriftOptions(Settings):
    """What to watch for.

    ``baseline``: by drafter name; a drafter without one has it learnt, for each workload, from its first
    ``learn_positions`` judged positions. ``min_ratio``: the fall that must be caught, acceptance down to this
    share of the baseline; falls to well above it are left alone. ``false_alarm_rate``: bound on false alarms
    per judged position. ``fallback``: drafter for new requests once the engine's own has raised an alarm on
    their workload; ``None`` keeps it. ``window_tokens``: output tokens of one window of the log.
    """

    baseline: Mapping[str, Baseline] | None = None
    min_ratio: float = 0.6
    false_alarm_rate: float = 1e-7
    learn_positions: int = 2000
    fallback: str | None = None
    window_tokens: int = 4096

    def __post_init__(self) -> None:
        check_float("drift: min_ratio", self.min_ratio, 0.05, 0.95)
        check_float("drift: false_alarm_rate", self.false_alarm_rate, 1e-12, 0.1)
        check_int("drift: learn_positions", self.learn_positions, 100)
        check_int("drift: window_tokens", self.window_tokens, 64)
        if self.fallback is not None and (not isinstance(self.fallback, str) or not self.fallback):
            raise ConfigError(
                f"drift: fallback={self.fallback!r}: give a drafter's name, for example 'ngram'"
            )
        for name, baseline in (self.baseline or {}).items():
            if not isinstance(baseline, Baseline):
                raise ConfigError(f"drift: baseline[{name!r}]={baseline!r:.60}: give a Baseline")

    def baseline_of(self, drafter: str) -> Baseline | None:
        """Return the given baseline of a drafter, if there is one."""
        return (self.baseline or {}).get(drafter)


def drift_options(table: Mapping[str, object]) -> DriftOptions:
    """Return the options of a ``[drift]`` table as ``paceline advise`` writes it. Raises ``ConfigError``."""
    settings = dict(table)
    given = settings.pop("baseline", {})
    if not isinstance(given, Mapping):
        raise ConfigError(f"baseline={given!r}: write tables, [drift.baseline.<drafter>]")
    baselines = {str(name): _baseline_of_table(str(name), plain) for name, plain in given.items()}
    return DriftOptions(baseline=baselines or None, **settings)  # type: ignore[arg-type]


def _baseline_of_table(name: str, plain: object) -> Baseline:
    if not isinstance(plain, Mapping):
        raise ConfigError(f"baseline.{name}={plain!r}: write a table with accepted, tried and dispersion")
    check_names(f"baseline.{name}", plain, (field.name for field in fields(Baseline)))
    try:
        accepted, tried = tuple(plain["accepted"]), tuple(plain["tried"])
    except (KeyError, TypeError) as error:
        raise ConfigError(f"baseline.{name} needs two lists, accepted and tried") from error
    return Baseline(accepted, tried, plain.get("dispersion", 1.0))


class BaselineLearner:
    """Learns a baseline from the first positions of a series, request by request."""

    __slots__ = ("_blocks", "_open", "_wanted", "total")

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._open: OrderedDict[str, Tally] = OrderedDict()
        self._blocks: list[Tally] = []
        self.total = Tally()

    def add(self, request_id: str, judged: Judged) -> None:
        """Count one verified draft of a request."""
        self.total.add(judged)
        block = self._open.setdefault(request_id, Tally())
        block.add(judged)
        if block.num_positions >= BLOCK_POSITIONS or len(self._open) > _OPEN_BLOCKS:
            oldest = request_id if block.num_positions >= BLOCK_POSITIONS else next(iter(self._open))
            self._blocks.append(self._open.pop(oldest))

    def baseline(self, min_ratio: float) -> Baseline | None:
        """Return what was learnt; ``None`` while it is too little, or too uneven, to tell a fall by."""
        if self.total.num_positions < self._wanted:
            return None
        blocks = [*self._blocks, *self._open.values()]
        if len(blocks) < MIN_BLOCKS:
            return None
        found = measured_baseline(self.total, blocks)
        return found if found.relative_error < (1.0 - min_ratio) / 2.0 else None


def measured_baseline(total: Tally, blocks: Sequence[Tally]) -> Baseline:
    """Return the baseline of ``total``, with the dispersion of ``blocks`` (tallies of single requests).

    Dispersion: Pearson's statistic over the blocks, squared deviations ÷ binomial variances, each summed,
    raised by two of its own standard errors: taken too high it makes an alarm later, too low a false one.
    """
    plain = Baseline(tuple(total.accepted_at), tuple(total.tried_at))
    rates = plain.rates
    deviation = variance = 0.0
    for block in blocks:
        expected = sum(rate * tried for rate, tried in zip(rates, block.tried_at, strict=False))
        deviation += (block.num_accepted - expected) ** 2
        variance += sum(r * (1.0 - r) * tried for r, tried in zip(rates, block.tried_at, strict=False))
    raised = (deviation / variance if variance else 1.0) * (1.0 + 2.0 * math.sqrt(2.0 / max(1, len(blocks))))
    return Baseline(plain.accepted, plain.tried, max(1.0, raised))


class FallDetector:
    """The CUSUM of one series against one baseline; see the module."""

    __slots__ = ("_accept", "_refuse", "_threshold", "baseline", "score", "since")

    def __init__(self, baseline: Baseline, min_ratio: float, false_alarm_rate: float) -> None:
        self.baseline = baseline
        self.score = 0.0
        self.since = Tally()
        """What was judged since the score was last 0: the estimate of what lies behind the change."""
        self._threshold = math.log(1.0 / false_alarm_rate)
        held = 1.0 - min(baseline.relative_error, (1.0 - min_ratio) / 2.0)
        self._accept, self._refuse = [], []
        for rate in baseline.rates:
            before, after = rate * held, rate * min_ratio
            self._accept.append(math.log(after / before) / baseline.dispersion)
            self._refuse.append(math.log((1.0 - after) / (1.0 - before)) / baseline.dispersion)

    def add(self, judged: Judged) -> bool:
        """Count one verified draft; return whether the fall is now certain."""
        last = len(self._accept) - 1
        for level in range(judged.accepted):
            self.score = max(0.0, self.score + self._accept[min(level, last)])
        if judged.refused:
            self.score += self._refuse[min(judged.accepted, last)]
        if self.score == 0.0:
            self.since = Tally()
        else:
            self.since.add(judged)
        return self.score >= self._threshold


class RiseDetector:
    """The opposite test, after an alarm: from ``min_ratio`` of the baseline back to all of it."""

    __slots__ = ("_accept", "_refuse", "_threshold", "score")

    def __init__(self, baseline: Baseline, min_ratio: float, false_alarm_rate: float) -> None:
        self.score = 0.0
        self._threshold = math.log(1.0 / false_alarm_rate)
        rates = baseline.rates
        self._accept = [-math.log(min_ratio) / baseline.dispersion for _ in rates]
        self._refuse = [math.log((1 - p) / (1 - p * min_ratio)) / baseline.dispersion for p in rates]

    def add(self, judged: Judged) -> bool:
        """Count one verified draft; return whether acceptance is back."""
        last = len(self._accept) - 1
        self.score += sum(self._accept[min(level, last)] for level in range(judged.accepted))
        if judged.refused:
            self.score = max(0.0, self.score + self._refuse[min(judged.accepted, last)])
        return self.score >= self._threshold
