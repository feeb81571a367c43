"""Whole replies with and without drafts: greedy ones, and sampled ones with a seed, must be the same.

Plain decoding runs twice, so that a baseline that does not repeat itself is not blamed on speculation. Tokens
are compared, and the bits of the logits each was chosen from, and all that users see of a reply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.check.differences import Difference, What, first_difference, kind_of
from paceline.check.progress import Progress
from paceline.check.subject import MAX_REQUESTS, Subject, run_to_end
from paceline.engine.outputs import CompletionOutput
from paceline.executors.base import Executor, ForwardBatch
from paceline.kv.block_pool import BlockPool
from paceline.kv.block_table import BlockTable
from paceline.sampling.params import SamplingParams

_NOISE_ROWS = 16
SEEDED: tuple[dict[str, Any], ...] = (
    {"temperature": 0.8, "top_p": 0.95},
    {"temperature": 1.0, "top_k": 50, "repetition_penalty": 1.1, "presence_penalty": 0.3},
    {"temperature": 1.5, "min_p": 0.05},
)
"""What seeded requests ask for, in turns: each filter, and penalties, at least once in three prompts."""


@dataclass(frozen=True, slots=True)
class CheckPrompt:
    """A prompt to check with; ``ids`` as serving makes them."""

    id: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RepliesResult:
    """``num_replies``: compared with plain ones; ``num_tokens``: in them. ``noise``: of a logit, measured.

    ``drafted``: tokens proposed by each drafter; one without any shows nothing of itself.
    """

    num_replies: int
    num_tokens: int
    drafted: Mapping[str, int]
    noise: float
    differences: tuple[Difference, ...]

    @property
    def passed(self) -> bool:
        """Whether no difference is a bug. Where noise is 0, plain decoding must repeat itself too."""
        wrong = ("bug", "baseline") if self.noise == 0.0 else ("bug",)
        return not any(difference.kind in wrong for difference in self.differences)


def seeded_params(index: int, max_tokens: int, drafter: str, draft_limit: int | None) -> SamplingParams:
    """Return the parameters of seeded request ``index``."""
    filters = SEEDED[index % len(SEEDED)]
    return SamplingParams(
        max_tokens=max_tokens,
        seed=index,
        logprobs=0,
        drafter=drafter,
        num_draft_tokens=draft_limit,
        **filters,
    )


def check_greedy(
    subject: Subject, prompts: Sequence[CheckPrompt], max_tokens: int, progress: Progress
) -> tuple[RepliesResult, list[CompletionOutput]]:
    """Compare greedy replies one by one; also return the plain ones."""
    noise = max(measured_noise(subject.executor, prompt.ids) for prompt in prompts[:4])
    engine = subject.engine()
    names = ("none", "none", *subject.drafters)
    differences: list[Difference] = []
    plain_replies, num_tokens, drafted = [], 0, dict.fromkeys(subject.drafters, 0)
    for prompt in prompts:
        replies = []
        for name in names:
            params = SamplingParams(
                temperature=0.0,
                max_tokens=max_tokens,
                logprobs=2,
                drafter=name,
                num_draft_tokens=subject.draft_limit(name),
            )
            replies.append(run_to_end(engine, {"0": (prompt.ids, params)})["0"])
            progress("greedy replies", len(prompts) * len(names))
        plain, again = replies[:2]
        plain_replies.append(plain)
        repeat = first_difference(plain.token_ids, again.token_ids)
        differences += [d.of(prompt.id, "none") for d in _compare(subject, plain, again, repeat, noise)]
        for name, other in zip(subject.drafters, replies[2:], strict=True):
            num_tokens += len(other.token_ids)
            drafted[name] += other.metrics.num_draft_tokens
            differences += [d.of(prompt.id, name) for d in _compare(subject, plain, other, repeat, noise)]
    count = len(prompts) * len(subject.drafters)
    return RepliesResult(count, num_tokens, drafted, noise, tuple(differences)), plain_replies


def check_seeded(
    subject: Subject, prompts: Sequence[CheckPrompt], max_tokens: int, noise: float, progress: Progress
) -> RepliesResult:
    """Compare seeded replies: plain ones run alone, of the others every second one in a batch.

    In full batches drafters keep silent, so batches alone would show nothing of them.
    """
    engine = subject.engine()
    total = len(prompts) * (2 + len(subject.drafters))
    together = range(1, len(prompts), 2)
    batches = [together[start : start + MAX_REQUESTS] for start in range(0, len(together), MAX_REQUESTS)]

    def replies(drafter: str, groups: Sequence[Sequence[int]]) -> list[CompletionOutput]:
        done: dict[str, CompletionOutput] = {}
        limit = subject.draft_limit(drafter)
        for group in groups:
            part = {str(i): (prompts[i].ids, seeded_params(i, max_tokens, drafter, limit)) for i in group}
            done |= run_to_end(engine, part)
            progress("seeded replies", total, len(group))
        return [done[str(index)] for index in range(len(prompts))]

    alone = [(index,) for index in range(len(prompts))]
    mixed = [*alone[::2], *batches]
    plain, again = replies("none", alone), replies("none", mixed)
    repeats = [first_difference(a.token_ids, b.token_ids) for a, b in zip(plain, again, strict=True)]
    differences: list[Difference] = []
    num_tokens, drafted = 0, Counter[str]()
    for name, others in (("none", again), *((name, replies(name, mixed)) for name in subject.drafters)):
        num_tokens += sum(len(other.token_ids) for other in others) if name != "none" else 0
        drafted[name] = sum(other.metrics.num_draft_tokens for other in others)
        for prompt, one, other, repeat in zip(prompts, plain, others, repeats, strict=True):
            found = _compare(subject, one, other, repeat, noise)
            differences += [difference.of(prompt.id, name) for difference in found]
    del drafted["none"]
    count = len(prompts) * len(subject.drafters)
    return RepliesResult(count, num_tokens, drafted, noise, tuple(differences))


def _compare(
    subject: Subject, plain: CompletionOutput, other: CompletionOutput, repeat: int | None, noise: float
) -> list[Difference]:
    """Return the differences between two replies, the first of each sort."""
    found: list[Difference] = []
    place = first_difference(plain.token_ids, other.token_ids)
    bits = first_difference(plain.logit_hashes or (), other.logit_hashes or ())
    # Without noise equal prefixes have equal logits; where there is noise, other bits alone say nothing.
    if noise == 0.0 and bits is not None and (place is None or bits <= place):
        found.append(_at(subject, plain, other, bits, None, repeat, noise, "logits"))
    if place is not None:
        found.append(_at(subject, plain, other, place, _gap(plain, other, place), repeat, noise, "token"))
        return found
    for what in ("text", "finish_reason"):
        one, two = getattr(plain, what), getattr(other, what)
        if one != two:
            found.append(Difference("bug", len(plain.token_ids), texts=(str(one), str(two)), what=what))
    return found


def _at(
    subject: Subject,
    plain: CompletionOutput,
    other: CompletionOutput,
    place: int,
    gap: float | None,
    repeat: int | None,
    noise: float,
    what: What,
) -> Difference:
    ids = tuple(reply.token_ids[place] if place < len(reply.token_ids) else None for reply in (plain, other))
    texts = (subject.token_text(ids[0]), subject.token_text(ids[1]))
    kind = kind_of(place, repeat, gap, noise)
    return Difference(kind, place, (ids[0], ids[1]), texts, gap, noise, what)


def _gap(plain: CompletionOutput, other: CompletionOutput, place: int) -> float | None:
    """Return how much likelier the plain token was there, if the plain reply tells."""
    if plain.logprobs is None or min(len(plain.token_ids), len(other.token_ids)) <= place:
        return None
    entries = plain.logprobs[place]
    rival = entries.get(other.token_ids[place])
    # Of a rival that is not listed it is known that it lies behind all that are.
    lowest = min(entry.logprob for entry in entries.values()) if rival is None else rival.logprob
    return entries[plain.token_ids[place]].logprob - lowest


def measured_noise(executor: Executor, ids: tuple[int, ...]) -> float:
    """Return the largest difference in a logit between rows computed alone and in one forward; 0: none.

    Uses blocks of the executor: no engine may run on it, and prefix caches over it are stale afterwards.
    """
    count = min(_NOISE_ROWS, len(ids))
    table = BlockTable(BlockPool(executor.num_blocks), executor.block_size)
    table.reserve(len(ids))
    together = executor.forward(ForwardBatch.chain(ids, 0, table.blocks, count)).copy()
    start, largest = len(ids) - count, 0.0
    for row in range(count):
        position = start + row
        batch = ForwardBatch.chain(ids[position : position + 1], position, table.blocks, 1)
        alone = executor.forward(batch)[0]
        largest = max(largest, float(np.abs(alone - together[row]).max()))
    return largest
