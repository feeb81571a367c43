"""From many replies of one drafter to the figures that are reported."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from paceline.bench.bootstrap import speed_interval, speedup_interval
from paceline.bench.latency import Latencies
from paceline.bench.predict import predicted_speedup
from paceline.bench.records import Reply, RunResult, Summary, distinct_share
from paceline.bench.samples import Samples, unit_numbers
from paceline.theory.cost_table import CostTable

Reference = Mapping[tuple[int, int], tuple[int, ...]]
"""Token ids of plain decoding at batch 1, by :attr:`Reply.key`."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the replies of a summary have in common.

    ``unseeded``: each reply was drawn with noise of its own (see :class:`Summary`). ``batch``: conversations
    at once. ``reference``: what replies are identical to or not; ``None``: those of ``none`` in the same
    repeat. ``costs``: the cost table of the model on this machine, if it was measured.
    """

    temperature: float = 0.0
    unseeded: bool = False
    batch: int = 1
    reference: Reference | None = None
    costs: CostTable | None = None


ALONE = Conditions()


def _median_sum(repeats: Sequence[Sequence[Reply]], name: str) -> float:
    sums: list[float] = [sum(getattr(r.measured, name) for r in replies) for replies in repeats]
    return statistics.median(sums)


def _by_repeat(replies: Sequence[Reply]) -> list[list[Reply]]:
    numbers = sorted({reply.repeat for reply in replies})
    return [[reply for reply in replies if reply.repeat == number] for number in numbers]


def _rates_at(replies: Sequence[Reply]) -> tuple[float, ...]:
    num_drafts = sum(reply.measured.num_drafts for reply in replies)
    counts = [reply.measured.accepted_at for reply in replies]
    kept = [sum(column) for column in zip_longest(*counts, fillvalue=0)]
    return tuple(count / num_drafts for count in kept) if num_drafts else ()


def _sums(repeats: Sequence[Sequence[Reply]]) -> tuple[list[float], list[int]]:
    """Return the seconds and the tokens of each repeat."""
    seconds = [sum(reply.measured.seconds for reply in group) for group in repeats]
    return seconds, [sum(len(reply.measured.token_ids) for reply in group) for group in repeats]


def _check_comparable(replies: Sequence[Reply], plain: Sequence[Reply], unseeded: bool) -> None:
    if unseeded:
        found, wanted = ({r.repeat for r in replies}, {r.repeat for r in plain})
        if not found or found != wanted:
            raise ValueError("a summary needs the same repeats from the drafter and from 'none'")
    elif not replies or sorted((r.key, r.repeat) for r in replies) != sorted(
        (r.key, r.repeat) for r in plain
    ):
        raise ValueError("a summary needs the same prompts and repeats from the drafter and from 'none'")


def _identical_share(replies: Sequence[Reply], plain: Sequence[Reply], reference: Reference | None) -> float:
    if reference is not None:
        return statistics.fmean(reply.measured.token_ids == reference[reply.key] for reply in replies)
    same_repeat = {(reply.key, reply.repeat): reply.measured.token_ids for reply in plain}
    return statistics.fmean(
        reply.measured.token_ids == same_repeat[reply.key, reply.repeat] for reply in replies
    )


def _peak(replies: Sequence[Reply]) -> int | None:
    peaks = [r.measured.peak_memory_bytes for r in replies if r.measured.peak_memory_bytes is not None]
    return max(peaks, default=None)


def summarize(replies: Sequence[Reply], plain: Sequence[Reply], conditions: Conditions = ALONE) -> Summary:
    """Return the summary of ``replies`` against the replies of ``none``. Both must not be empty.

    Raises ``ValueError`` when the two do not hold the same prompts and repeats; ``unseeded`` replies need
    only the same repeats, as their speeds are compared per token.
    """
    unseeded = conditions.unseeded
    _check_comparable(replies, plain, unseeded)
    repeats = _by_repeat(replies)
    (seconds, tokens), (plain_seconds, plain_tokens) = _sums(repeats), _sums(_by_repeat(plain))
    speeds = [n / s for n, s in zip(tokens, seconds, strict=True)]
    plain_speeds = [n / s for n, s in zip(plain_tokens, plain_seconds, strict=True)]
    by_time = [p / s for p, s in zip(plain_seconds, seconds, strict=True)]
    by_speed = [mine / theirs for mine, theirs in zip(speeds, plain_speeds, strict=True)]
    draft, verify = _median_sum(repeats, "draft_seconds"), _median_sum(repeats, "verify_seconds")
    samples, plain_samples = _samples(replies, plain)
    return Summary(
        num_replies=int(statistics.median(len(group) for group in repeats)),
        tokens=int(statistics.median(tokens)),
        seconds=statistics.median(seconds),
        tokens_per_s=statistics.median(speeds),
        tokens_per_s_spread=(min(speeds), max(speeds)),
        tokens_per_step=sum(tokens) / max(1, sum(reply.measured.num_steps for reply in replies)),
        acceptance_rate=_acceptance_rate(replies),
        acceptance_rate_at=_rates_at(replies),
        identical_share=None if unseeded else _identical_share(replies, plain, conditions.reference),
        distinct_4gram_share=statistics.fmean(distinct_share(reply.measured.token_ids) for reply in replies),
        speedup=statistics.median(by_speed if unseeded else by_time),
        draft_seconds=draft,
        verify_seconds=verify,
        other_seconds=max(0.0, statistics.median(seconds) - draft - verify),
        speedup_ci=speedup_interval(samples, plain_samples, per_token=unseeded),
        tokens_per_s_ci=speed_interval(samples),
        predicted_speedup=_prediction(replies, plain, conditions),
        peak_memory_bytes=_peak(replies),
        latencies=Latencies.of([reply.measured for reply in replies]),
        samples=samples,
    )


def _samples(replies: Sequence[Reply], plain: Sequence[Reply]) -> tuple[Samples, Samples]:
    """Return the samples of both on the same units and repeats."""
    numbers = unit_numbers(replies, plain)
    return Samples.of(replies, *numbers), Samples.of(plain, *numbers)


def _acceptance_rate(replies: Sequence[Reply]) -> float | None:
    drafted = sum(reply.measured.num_draft_tokens for reply in replies)
    return sum(r.measured.num_accepted_tokens for r in replies) / drafted if drafted else None


def _prediction(replies: Sequence[Reply], plain: Sequence[Reply], conditions: Conditions) -> float | None:
    if conditions.costs is None:
        return None
    sides = ([reply.measured for reply in replies], [reply.measured for reply in plain])
    return predicted_speedup(*sides, replies[0].drafter, conditions.batch, conditions.costs)


def _varied(
    replies: Sequence[Reply], plain: Sequence[Reply], unseeded: bool
) -> tuple[list[Reply], list[Reply]]:
    """Return the varied replies of a drafter and of ``none``.

    Where both give one text, that of ``none`` decides, so that every drafter is judged on the same prompts.
    Unseeded replies each speak for themselves; a repeat without varied ones on both sides is left out.
    """
    if not unseeded:
        keys = {reply.key for reply in plain if reply.repeat == 0 and reply.is_varied}
        return [r for r in replies if r.key in keys], [r for r in plain if r.key in keys]
    mine, theirs = [r for r in replies if r.is_varied], [r for r in plain if r.is_varied]
    repeats = {r.repeat for r in mine} & {r.repeat for r in theirs}
    return [r for r in mine if r.repeat in repeats], [r for r in theirs if r.repeat in repeats]


def summarize_run(
    workload: str, drafter: str, model: str, replies: Sequence[Reply], conditions: Conditions = ALONE
) -> RunResult:
    """Return the result of ``drafter`` on ``workload``; ``replies``: all measured ones, of ``none`` too."""
    mine = [r for r in replies if r.prompt.workload == workload and r.drafter == drafter]
    plain = [r for r in replies if r.prompt.workload == workload and r.drafter == "none"]
    varied, varied_plain = _varied(mine, plain, conditions.unseeded)
    categories = dict.fromkeys(reply.prompt.part for reply in mine if reply.prompt.part)

    def part_of(part: str) -> Summary:
        ours, theirs = ([r for r in side if r.prompt.part == part] for side in (mine, plain))
        return summarize(ours, theirs, conditions)

    return RunResult(
        workload=workload,
        drafter=drafter,
        model=model,
        all_replies=summarize(mine, plain, conditions),
        varied_replies=summarize(varied, varied_plain, conditions) if varied else None,
        categories={part: part_of(part) for part in categories},
        batch=conditions.batch,
        temperature=conditions.temperature,
    )
