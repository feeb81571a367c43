"""Watching acceptance while requests run: one alarm line when it falls, likely causes, and the fallback.

The engine tells it of every verified draft. It never looks at text and reads no clock for a decision, so the
same requests raise the same alarms; and whatever it decides changes which drafter proposes, never a reply.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from paceline.control.acceptance_log import AcceptanceLog, Judged, Series, Tally
from paceline.control.drift import BaselineLearner, DriftOptions, FallDetector, RiseDetector

logger = logging.getLogger("paceline.drift")

_MIN_SHARE = 0.9
"""Another series, or position, counts as holding when it has at least this share of its baseline."""
_HOTTER = 0.2
"""A rise of the mean temperature that explains a fall."""
_FEW = 20
"""Positions that say something of one depth or of another series."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One fall. ``baseline_rate`` → ``rate``: acceptance per judged position, the second over the last
    ``num_positions`` of them, which were ``num_tokens`` output tokens.
    """

    drafter: str
    workload: str | None
    baseline_rate: float
    rate: float
    num_positions: int
    num_tokens: int
    causes: tuple[str, ...]
    fallback: str | None

    def __str__(self) -> str:
        where = "" if self.workload is None else f", workload {self.workload!r}"
        action = "" if self.fallback is None else f"; new requests use {self.fallback!r}"
        return (
            f"acceptance of drafter {self.drafter!r}{where} fell from {self.baseline_rate:.0%} to "
            f"{self.rate:.0%} (last {self.num_positions} positions judged, {self.num_tokens} tokens); "
            f"likely: "
            f"{'; '.join(self.causes)}{action}"
        )


@dataclass(slots=True)
class _Watched:
    """What is known of one series. ``temperature``: sums for its mean while learning and since the score was
    0.
    """

    series: Series
    learner: BaselineLearner | None
    fall: FallDetector | None = None
    rise: RiseDetector | None = None
    heat_before: list[float] = field(default_factory=lambda: [0.0, 0.0])
    heat_since: list[float] = field(default_factory=lambda: [0.0, 0.0])
    tokens_since: int = 0


class DriftWatch:
    """Keeps the log and, with ``options``, a detector for each drafter and workload.

    ``alarms``: all that were raised, oldest first. After an alarm a series is quiet until acceptance has come
    back; then an info line says so, and the next fall is an alarm again. With a fallback nothing more is
    seen of the drafter that fell, so it stays replaced until :meth:`rearm`.
    """

    def __init__(self, options: DriftOptions | None = None) -> None:
        self.options = options
        self.log = AcceptanceLog((options or DriftOptions()).window_tokens)
        self.alarms: list[Alarm] = []
        self._watched: dict[tuple[str, str | None], _Watched] = {}

    @property
    def num_alarms(self) -> int:
        """Alarms raised since the start, for a metric that only rises."""
        return len(self.alarms)

    def record(
        self,
        drafter: str,
        workload: str | None,
        request_id: str,
        judged: Judged,
        *,
        num_draft_tokens: int,
        num_tokens: int,
        temperature: float = 0.0,
    ) -> None:
        """Count one verified draft of a request; ``num_tokens``: output tokens of its step."""
        series = self.log.of(drafter, workload)
        series.add(judged, num_draft_tokens, num_tokens)
        if self.options is not None and judged.num_positions:
            self._watch(self.options, series, request_id, judged, num_tokens, temperature)

    def is_alarmed(self, drafter: str, workload: str | None) -> bool:
        """Return whether the last word on a drafter and workload is an alarm."""
        watched = self._watched.get((drafter, workload))
        return watched is not None and watched.rise is not None

    def in_place_of(self, drafter: str, workload: str | None) -> str:
        """Return the drafter that a new request should get where it would get ``drafter``."""
        fallback = self.options.fallback if self.options is not None else None
        return fallback if fallback is not None and self.is_alarmed(drafter, workload) else drafter

    def rearm(self) -> None:
        """Take back all alarms: drafters are used again and watched against the same baselines."""
        for watched in self._watched.values():
            if watched.rise is not None and watched.fall is not None:
                self._start_watching(watched, watched.fall)

    # ---- one series ----

    def _watch(
        self,
        options: DriftOptions,
        series: Series,
        request_id: str,
        judged: Judged,
        num_tokens: int,
        temperature: float,
    ) -> None:
        watched = self._of(options, series)
        if watched.learner is not None:
            watched.heat_before[0] += temperature
            watched.heat_before[1] += 1
            watched.learner.add(request_id, judged)
            baseline = watched.learner.baseline(options.min_ratio)
            if baseline is not None:
                watched.learner = None
                watched.fall = FallDetector(baseline, options.min_ratio, options.false_alarm_rate)
        elif watched.rise is not None:
            if watched.rise.add(judged) and watched.fall is not None:
                logger.info("acceptance of drafter %r on %r is back", series.drafter, series.workload)
                self._start_watching(watched, watched.fall)
        elif watched.fall is not None:
            fell = watched.fall.add(judged)
            if watched.fall.score == 0.0:
                watched.heat_since, watched.tokens_since = [0.0, 0.0], 0
            watched.heat_since[0] += temperature
            watched.heat_since[1] += 1
            watched.tokens_since += num_tokens
            if fell:
                self._raise_alarm(options, watched, watched.fall)

    def _of(self, options: DriftOptions, series: Series) -> _Watched:
        key = (series.drafter, series.workload)
        if key not in self._watched:
            given = options.baseline_of(series.drafter)
            if given is not None and given.relative_error >= (1.0 - options.min_ratio) / 2.0:
                logger.info("the baseline of %r is too uncertain; it is learnt again", series.drafter)
                given = None
            watched = _Watched(series, BaselineLearner(options.learn_positions) if given is None else None)
            if given is not None:
                watched.fall = FallDetector(given, options.min_ratio, options.false_alarm_rate)
            self._watched[key] = watched
        return self._watched[key]

    def _start_watching(self, watched: _Watched, before: FallDetector) -> None:
        assert self.options is not None
        watched.rise = None
        watched.fall = FallDetector(before.baseline, self.options.min_ratio, self.options.false_alarm_rate)

    def _raise_alarm(self, options: DriftOptions, watched: _Watched, fall: FallDetector) -> None:
        series = watched.series
        alarm = Alarm(
            series.drafter,
            series.workload,
            fall.baseline.rate,
            fall.since.rate,
            fall.since.num_positions,
            watched.tokens_since,
            self._causes(watched, fall),
            options.fallback if options.fallback != series.drafter else None,
        )
        self.alarms.append(alarm)
        watched.rise = RiseDetector(fall.baseline, options.min_ratio, options.false_alarm_rate)
        logger.warning("%s", alarm)

    # ---- causes ----

    def _causes(self, watched: _Watched, fall: FallDetector) -> tuple[str, ...]:
        """Return what the counts point to, the most telling first."""
        causes = []
        before, since = (_mean(sums) for sums in (watched.heat_before, watched.heat_since))
        if watched.heat_before[1] and since > before + _HOTTER:
            causes.append(f"requests sample at a higher temperature ({before:.1f} before, {since:.1f} now)")
        if _first_holds(fall):
            causes.append(
                "only later positions fall: drafts are too long for this text, or the head's own states went "
                "wrong (check its norm and rope settings)"
            )
        others = [other for other in self._watched.values() if other is not watched and _same(other, watched)]
        states = [_has_fallen(other) for other in others]
        if any(states):
            causes.append(
                "other workloads of this drafter fell too: the target's weights, its quantisation or an "
                "adapter changed, or the drafter's file did"
            )
        elif False in states:
            causes.append(
                "other workloads of this drafter hold: these prompts are of another kind than before"
            )
        else:
            causes.append(
                "prompts of another kind than the baseline's (label them with `workload`), or the target or "
                "the drafter's file was changed"
            )
        return tuple(causes)


def _mean(sums: list[float]) -> float:
    return sums[0] / sums[1] if sums[1] else 0.0


def _same(one: _Watched, other: _Watched) -> bool:
    return one.series.drafter == other.series.drafter


def _first_holds(fall: FallDetector) -> bool:
    """Return whether depth 1 is as good as ever while there is enough to see of it and of deeper ones."""
    since = fall.since
    if len(since.tried_at) < 2 or since.tried_at[0] < _FEW or sum(since.tried_at[1:]) < _FEW:
        return False
    return since.accepted_at[0] / since.tried_at[0] >= _MIN_SHARE * fall.baseline.rates[0]


def _has_fallen(other: _Watched) -> bool | None:
    """Return whether another series is below its baseline of late; ``None`` when nothing is known of it."""
    if other.rise is not None:
        return True
    recent = other.series.windows[-1].tally if other.series.windows else Tally()
    if other.fall is None or recent.num_positions < _FEW:
        return None
    return recent.rate < _MIN_SHARE * other.fall.baseline.rate and other.fall.score > 0.0
