"""What the bench measures. Counts are those of design.md §7; times are wall seconds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from paceline.bench.datasets import BenchPrompt

VARIED_SHARE = 0.5
"""A reply is *varied* when at least this share of its 4-grams are distinct (see :func:`distinct_share`)."""


def distinct_share(token_ids: Sequence[int], n: int = 4) -> float:
    """Return the number of different n-grams ÷ the number of n-grams; 1.0 for replies shorter than n.

    Small models loop under greedy decoding, and a loop makes any drafter that copies look brilliant.
    """
    grams = [tuple(token_ids[i : i + n]) for i in range(len(token_ids) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One reply as the engine gave it.

    ``num_steps``: verify steps. ``num_drafts``: steps with a draft that was not empty. ``accepted_at[i]``:
    drafts whose token at depth i + 1 was kept. ``seconds``: from handing the prompt over to the last token,
    prompt processing included; ``draft_seconds`` and ``verify_seconds`` are parts of it.
    """

    token_ids: tuple[int, ...]
    text: str
    seconds: float
    num_steps: int
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    accepted_at: tuple[int, ...]
    draft_seconds: float
    verify_seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """A measured reply and which one it is: ``number`` (of its prompt), ``turn``, ``repeat`` count from 0."""

    number: int
    prompt: BenchPrompt
    turn: int
    repeat: int
    drafter: str
    measured: Measured

    @property
    def key(self) -> tuple[int, int]:
        """Which reply this is, whoever gives it. Ids of prompts would not do: files repeat them."""
        return self.number, self.turn

    @property
    def is_varied(self) -> bool:
        return distinct_share(self.measured.token_ids) >= VARIED_SHARE


@dataclass(frozen=True, slots=True)
class Summary:
    """Many replies of one drafter in numbers.

    ``tokens`` and the seconds are sums over one repeat (medians over repeats). ``tokens_per_s``: median over
    the repeats; ``tokens_per_s_spread``: the slowest and the fastest repeat. ``speedup``: median over the
    repeats of the wall time of ``none`` ÷ this drafter's in the same repeat; of unseeded replies, which are
    not those of ``none``, tokens_per_s of this drafter ÷ that of ``none`` (for identical replies the same
    number). ``identical_share``: share of replies whose token ids equal those of ``none``, and ``None`` when
    they are unseeded. ``distinct_4gram_share``: mean over the replies. ``acceptance_rate`` is ``None`` when
    nothing was drafted.
    """

    num_replies: int
    tokens: int
    seconds: float
    tokens_per_s: float
    tokens_per_s_spread: tuple[float, float]
    tokens_per_step: float
    acceptance_rate: float | None
    acceptance_rate_at: tuple[float, ...]
    identical_share: float | None
    distinct_4gram_share: float
    speedup: float
    draft_seconds: float
    verify_seconds: float
    other_seconds: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """One drafter on one workload, over all replies and over the varied ones (``None`` without any).

    ``categories``: over all replies of each category, for a workload made of several; else empty.
    """

    workload: str
    drafter: str
    model: str
    all_replies: Summary
    varied_replies: Summary | None
    categories: Mapping[str, Summary]


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


def _identical_share(replies: Sequence[Reply], plain: Sequence[Reply]) -> float:
    reference = {(reply.key, reply.repeat): reply.measured.token_ids for reply in plain}
    return statistics.fmean(
        reply.measured.token_ids == reference[reply.key, reply.repeat] for reply in replies
    )


def summarize(replies: Sequence[Reply], plain: Sequence[Reply], *, unseeded: bool = False) -> Summary:
    """Return the summary of ``replies`` against the replies of ``none``. Both must not be empty.

    Raises ``ValueError`` when the two do not hold the same prompts and repeats; ``unseeded`` replies need
    only the same repeats, as their speeds are compared per token.
    """
    _check_comparable(replies, plain, unseeded)
    repeats = _by_repeat(replies)
    (seconds, tokens), (plain_seconds, plain_tokens) = _sums(repeats), _sums(_by_repeat(plain))
    speeds = [n / s for n, s in zip(tokens, seconds, strict=True)]
    plain_speeds = [n / s for n, s in zip(plain_tokens, plain_seconds, strict=True)]
    by_time = [p / s for p, s in zip(plain_seconds, seconds, strict=True)]
    by_speed = [mine / theirs for mine, theirs in zip(speeds, plain_speeds, strict=True)]
    drafted = sum(reply.measured.num_draft_tokens for reply in replies)
    draft, verify = _median_sum(repeats, "draft_seconds"), _median_sum(repeats, "verify_seconds")
    return Summary(
        num_replies=int(statistics.median(len(group) for group in repeats)),
        tokens=int(statistics.median(tokens)),
        seconds=statistics.median(seconds),
        tokens_per_s=statistics.median(speeds),
        tokens_per_s_spread=(min(speeds), max(speeds)),
        tokens_per_step=sum(tokens) / max(1, sum(reply.measured.num_steps for reply in replies)),
        acceptance_rate=sum(r.measured.num_accepted_tokens for r in replies) / drafted if drafted else None,
        acceptance_rate_at=_rates_at(replies),
        identical_share=None if unseeded else _identical_share(replies, plain),
        distinct_4gram_share=statistics.fmean(distinct_share(reply.measured.token_ids) for reply in replies),
        speedup=statistics.median(by_speed if unseeded else by_time),
        draft_seconds=draft,
        verify_seconds=verify,
        other_seconds=max(0.0, statistics.median(seconds) - draft - verify),
    )


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
    workload: str, drafter: str, model: str, replies: Sequence[Reply], *, unseeded: bool = False
) -> RunResult:
    """Return the result of ``drafter`` on ``workload``; ``replies`` holds all measured ones, of ``none`` too.

    ``unseeded``: each reply was drawn with noise of its own (see :class:`Summary`).
    """
    mine = [r for r in replies if r.prompt.workload == workload and r.drafter == drafter]
    plain = [r for r in replies if r.prompt.workload == workload and r.drafter == "none"]
    varied, varied_plain = _varied(mine, plain, unseeded)
    categories = dict.fromkeys(reply.prompt.part for reply in mine if reply.prompt.part)
    return RunResult(
        workload=workload,
        drafter=drafter,
        model=model,
        all_replies=summarize(mine, plain, unseeded=unseeded),
        varied_replies=summarize(varied, varied_plain, unseeded=unseeded) if varied else None,
        categories={
            part: summarize(
                [r for r in mine if r.prompt.part == part],
                [r for r in plain if r.prompt.part == part],
                unseeded=unseeded,
            )
            for part in categories
        },
    )
