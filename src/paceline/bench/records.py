"""What the bench measures. Counts are those of design.md §7; times are wall seconds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

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
    """A measured reply and which one it is: ``turn`` and ``repeat`` count from 0."""

    workload: str
    prompt_id: str
    turn: int
    repeat: int
    drafter: str
    measured: Measured

    @property
    def key(self) -> tuple[str, str, int]:
        """Which reply this is, whoever gives it."""
        return self.workload, self.prompt_id, self.turn


@dataclass(frozen=True, slots=True)
class Summary:
    """Many replies of one drafter in numbers.

    ``tokens`` and the seconds are sums over one repeat (medians over repeats). ``tokens_per_s``: median over
    the repeats; ``tokens_per_s_spread``: the slowest and the fastest repeat. ``speedup``: median over the
    repeats of the wall time of ``none`` ÷ this drafter's in the same repeat. ``identical_share``: share of
    replies whose token ids equal those of ``none``. ``distinct_4gram_share``: mean over the replies.
    ``acceptance_rate`` is ``None`` when nothing was drafted.
    """

    num_replies: int
    tokens: int
    seconds: float
    tokens_per_s: float
    tokens_per_s_spread: tuple[float, float]
    tokens_per_step: float
    acceptance_rate: float | None
    acceptance_rate_at: tuple[float, ...]
    identical_share: float
    distinct_4gram_share: float
    speedup: float
    draft_seconds: float
    verify_seconds: float
    other_seconds: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """One drafter on one workload, over all replies and over the varied ones (``None`` without any)."""

    workload: str
    drafter: str
    model: str
    all_replies: Summary
    varied_replies: Summary | None


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


def summarize(replies: Sequence[Reply], plain: Sequence[Reply]) -> Summary:
    """Return the summary of ``replies`` against the same replies of ``none``. Both must not be empty.

    Raises ``ValueError`` when the two do not hold the same prompts and repeats.
    """
    reference = {(reply.key, reply.repeat): reply for reply in plain}
    if not replies or sorted(reference) != sorted((reply.key, reply.repeat) for reply in replies):
        raise ValueError("a summary needs the same prompts and repeats from the drafter and from 'none'")
    repeats, plain_repeats = _by_repeat(replies), _by_repeat(plain)
    seconds = [sum(reply.measured.seconds for reply in group) for group in repeats]
    plain_seconds = [sum(reply.measured.seconds for reply in group) for group in plain_repeats]
    tokens = [sum(len(reply.measured.token_ids) for reply in group) for group in repeats]
    speeds = [n / s for n, s in zip(tokens, seconds, strict=True)]
    drafted = sum(reply.measured.num_draft_tokens for reply in replies)
    same = sum(
        reply.measured.token_ids == reference[reply.key, reply.repeat].measured.token_ids for reply in replies
    )
    draft, verify = _median_sum(repeats, "draft_seconds"), _median_sum(repeats, "verify_seconds")
    return Summary(
        num_replies=len(repeats[0]),
        tokens=int(statistics.median(tokens)),
        seconds=statistics.median(seconds),
        tokens_per_s=statistics.median(speeds),
        tokens_per_s_spread=(min(speeds), max(speeds)),
        tokens_per_step=sum(tokens) / max(1, sum(reply.measured.num_steps for reply in replies)),
        acceptance_rate=sum(r.measured.num_accepted_tokens for r in replies) / drafted if drafted else None,
        acceptance_rate_at=_rates_at(replies),
        identical_share=same / len(replies),
        distinct_4gram_share=statistics.fmean(distinct_share(reply.measured.token_ids) for reply in replies),
        speedup=statistics.median(p / s for p, s in zip(plain_seconds, seconds, strict=True)),
        draft_seconds=draft,
        verify_seconds=verify,
        other_seconds=max(0.0, statistics.median(seconds) - draft - verify),
    )


def summarize_run(workload: str, drafter: str, model: str, replies: Sequence[Reply]) -> RunResult:
    """Return the result of ``drafter`` on ``workload``; ``replies`` holds all measured ones, of ``none`` too.

    Whether a reply is varied is judged by the reply of ``none``, so that every drafter is judged on the same
    prompts.
    """
    mine = [r for r in replies if r.workload == workload and r.drafter == drafter]
    plain = [r for r in replies if r.workload == workload and r.drafter == "none"]
    varied = {r.key for r in plain if r.repeat == 0 and distinct_share(r.measured.token_ids) >= VARIED_SHARE}
    subset = [r for r in mine if r.key in varied]
    return RunResult(
        workload=workload,
        drafter=drafter,
        model=model,
        all_replies=summarize(mine, plain),
        varied_replies=summarize(subset, [r for r in plain if r.key in varied]) if subset else None,
    )
