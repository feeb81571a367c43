"""Is the law of sampled replies the target's? The first tokens' joint law against exact enumeration.

Each acceptance rule is drawn from many times under each filter, on the laws of the user's own model; then
each drafter in question through the whole engine; then rules that are known to be wrong, which must be
caught: a test that cannot fail proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.check.chi_square import chi_square, detectable_distance
from paceline.check.controls import CONTROLS
from paceline.check.drafted import DraftedCase, drafted_cases, draw_drafted
from paceline.check.exact_law import Reply, SequenceLaw, enumerate_law
from paceline.check.paths import PathReader
from paceline.check.progress import Progress
from paceline.check.rehearsal import NUM_TOKENS, LawBook, Rehearsal
from paceline.check.replies import CheckPrompt
from paceline.check.subject import Subject
from paceline.config import Acceptance
from paceline.engine.outputs import CompletionOutput
from paceline.sampling import kernels
from paceline.sampling.noise import Stream, noise_key, noise_word
from paceline.sampling.params import SamplingParams

FALSE_ALARM = 1e-6
"""Probability that a right engine fails the whole part; its tests share it evenly (Bonferroni)."""
TOP_K = 4
"""Four tokens at each of three places: at most 64 replies, so that each is drawn often enough."""
FILTERS: dict[str, dict[str, Any]] = {
    "top_k": {},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.15},
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.25},
    "temperature 0.3": {"temperature": 0.3},
    "temperature 1.5": {"temperature": 1.5},
}
RULES: tuple[tuple[str, Acceptance, bool], ...] = (
    ("rejection", "rejection", False),
    ("block", "block", False),
    ("coupled", "coupled", False),
    ("certain tree", "block", True),
)
"""Name, acceptance rule, whether drafts are certain."""
_WANTED_ENTROPY = 1.1
"""Nats of the law of the first token (at most log 4 = 1.39): open, but not so even that mistakes cancel."""
_CANDIDATES = 16


@dataclass(frozen=True, slots=True)
class LawTest:
    """One test. ``num_cells``: replies the law holds. ``p_value`` below ``threshold``: not this law.

    ``is_control``: the rule is wrong, and the test is passed when that is noticed. ``num_draft_tokens``: what
    a drafter proposed in all draws; ``None`` for rules, which are rehearsed with drafts throughout.
    """

    name: str
    filters: str
    num_draws: int
    num_cells: int
    statistic: float
    degrees: int
    p_value: float
    threshold: float
    is_control: bool = False
    num_draft_tokens: int | None = None

    @property
    def is_silent(self) -> bool:
        """Whether a drafter proposed nothing, so that the test shows nothing of it."""
        return self.num_draft_tokens == 0

    @property
    def passed(self) -> bool:
        return (self.p_value < self.threshold) == self.is_control


@dataclass(frozen=True, slots=True)
class LawResult:
    """``context``: the text the draws continue. ``detectable``: total variation that is found at 99 %."""

    prompt: str
    context: str
    num_draws: int
    false_alarm: float
    detectable: float
    tests: tuple[LawTest, ...]

    @property
    def passed(self) -> bool:
        return all(test.passed for test in self.tests)


def check_law(
    subject: Subject,
    prompts: Sequence[CheckPrompt],
    plain: Sequence[CompletionOutput],
    num_draws: int,
    seed: int,
    progress: Progress,
) -> LawResult:
    """Run all tests behind the prompt, or a place of its greedy reply, where most is open."""
    reader = PathReader(subject.executor)
    prompt, context = open_context(subject, reader, prompts, plain)
    cases = drafted_cases(subject)
    share = FALSE_ALARM / (len(RULES) * len(FILTERS) + len(cases))
    total = len(RULES) * len(FILTERS) + len(CONTROLS) + len(cases)
    tests: list[LawTest] = []
    laws: dict[SamplingParams, SequenceLaw] = {}

    def run(name: str, filters: str, params: SamplingParams, draw: Drawing, control: bool = False) -> None:
        if params not in laws:
            laws[params] = enumerate_law(reader.logits, params, context, NUM_TOKENS)
        law = laws[params]
        counts, drafted = draw(_seeds(seed, len(tests), num_draws))
        found = chi_square(counts, law)
        numbers = (found.statistic, found.degrees, found.p_value)
        tests.append(LawTest(name, filters, num_draws, len(law), *numbers, share, control, drafted))
        progress("law of sampled replies", total)

    for filters, chosen in FILTERS.items():
        book = LawBook(reader.logits, context, law_params(chosen))
        for name, rule, certain in RULES:
            run(name, filters, book.params, _rehearsed(Rehearsal(book, rule, subject.accept_rule, certain)))
    for control in CONTROLS:
        book = LawBook(reader.logits, context, law_params(control.filters))
        run(control.name, "wrong on purpose", book.params, _rehearsed(control.build(book)), control=True)
    for case in cases:
        run(case.name, "penalties", case.params, _drafted(subject, case, context))
    widest = max(test.degrees for test in tests)
    detectable = detectable_distance(num_draws, widest, share)
    text = "".join(map(subject.token_text, context[-24:]))
    return LawResult(prompt.id, text, num_draws, FALSE_ALARM, detectable, tuple(tests))


Drawing = Callable[[Iterable[int]], tuple[Counter[Reply], int | None]]


def _rehearsed(rehearsal: Rehearsal) -> Drawing:
    return lambda seeds: (rehearsal.draw(seeds), None)


def _drafted(subject: Subject, case: DraftedCase, context: Reply) -> Drawing:
    return lambda seeds: draw_drafted(subject, case, context, seeds)


def law_params(chosen: dict[str, Any]) -> SamplingParams:
    """Return the parameters of a test: ``chosen``, with few enough tokens, never ended by an end token."""
    return SamplingParams(**{"top_k": TOP_K, "ignore_eos": True, "max_tokens": None, **chosen})


def _seeds(seed: int, test: int, count: int) -> Iterable[int]:
    key = noise_key(seed, test, Stream.FINAL)
    return (noise_word(key, index) for index in range(count))


def open_context(
    subject: Subject,
    reader: PathReader,
    prompts: Sequence[CheckPrompt],
    plain: Sequence[CompletionOutput],
) -> tuple[CheckPrompt, Reply]:
    """Return the prompt and the beginning of its greedy reply behind which the law is openest."""
    best: tuple[float, CheckPrompt, Reply] | None = None
    room = subject.max_model_len - NUM_TOKENS - 8
    for prompt, reply in zip(prompts[:_CANDIDATES], plain[:_CANDIDATES], strict=True):
        for place in range(0, min(len(reply.token_ids), 24), 2):
            context = (*prompt.ids, *reply.token_ids[:place])
            if len(context) > room:
                break
            law = kernels.filtered_law(reader.logits(context), 1.0, TOP_K, 1.0, 0.0)
            away = abs(-float(np.sum(law.probs * np.log(law.probs))) - _WANTED_ENTROPY)
            if best is None or away < best[0]:
                best = (away, prompt, context)
    assert best is not None, "a prompt that fits the context has a first place"
    return best[1], best[2]
