"""What the bench measures. Counts are those of design.md §7; times are wall seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from paceline.bench.datasets import BenchPrompt

if TYPE_CHECKING:
    from paceline.bench.latency import Latencies
    from paceline.bench.samples import Samples

VARIED_SHARE = 0.5
"""A reply is *varied* when at least this share of its 4-grams are distinct (see :func:`distinct_share`)."""


def distinct_share(token_ids: Sequence[int], n: int = 4) -> float:
    """Return the number of different n-grams ÷ the number of n-grams; 1.0 for replies shorter than n.

    Small models loop under greedy decoding, and a loop makes any drafter that copies look brilliant.
    """
    grams = [tuple(token_ids[i : i + n]) for i in range(len(token_ids) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


class Delivery(NamedTuple):
    """Tokens that came at once. ``seconds``: since the prompt was handed over."""

    seconds: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One reply as the engine gave it.

    ``num_steps``: verify steps. ``num_drafts``: steps with a draft that was not empty. ``accepted_at[i]``:
    drafts whose token at depth i + 1 was kept. ``seconds``: from handing the prompt over to the last token,
    prompt processing included; ``draft_seconds`` and ``verify_seconds`` are parts of it. In a batch of n,
    ``seconds`` and ``verify_seconds`` are the n-th part of the batch's, so that sums are wall time;
    ``deliveries`` are as its user saw them. ``drafts_at[i]``: drafts that reached depth i + 1.
    ``peak_memory_bytes``: of the process while it was made; ``None`` where the system does not tell.
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
    deliveries: tuple[Delivery, ...] = ()
    drafts_at: tuple[int, ...] = ()
    peak_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A measured reply and which one it is: ``number`` (of its prompt), ``turn``, ``repeat`` count from 0.

    ``batch``: number of the batch it was answered in; ``None`` when it was alone.
    """

    number: int
    prompt: BenchPrompt
    turn: int
    repeat: int
    drafter: str
    measured: Measured
    batch: int | None = None

    @property
    def unit(self) -> int:
        """What has a time of its own: the batch, or the conversation."""
        return self.number if self.batch is None else self.batch

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
    they are unseeded; in batches, those of ``none`` at batch 1. ``distinct_4gram_share``: mean over the
    replies. ``acceptance_rate`` is ``None`` when nothing was drafted. ``speedup_ci``, ``tokens_per_s_ci``:
    95 % intervals (see :mod:`paceline.bench.bootstrap`), ``None`` with a single prompt and repeat.
    ``predicted_speedup``: from the cost table and the measured acceptance (see
    :mod:`paceline.bench.predict`), ``None`` without a table that knows the drafter. ``peak_memory_bytes``:
    the highest of the process. ``latencies``: over all replies of all repeats. ``samples``: what the
    intervals were computed from.
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
    speedup_ci: tuple[float, float] | None
    tokens_per_s_ci: tuple[float, float] | None
    predicted_speedup: float | None
    peak_memory_bytes: int | None
    latencies: Latencies
    samples: Samples


@dataclass(frozen=True, slots=True)
class RunResult:
    """One drafter on one workload, over all replies and over the varied ones (``None`` without any).

    ``categories``: over all replies of each category, for a workload made of several; else empty. ``batch``:
    conversations at once.
    """

    workload: str
    drafter: str
    model: str
    all_replies: Summary
    varied_replies: Summary | None
    categories: Mapping[str, Summary]
    batch: int = 1
    temperature: float = 0.0
