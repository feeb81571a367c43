"""``auto`` against every fixed {drafter} × k: all are screened; each drafter's best then in turns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from guard_cases import turns_of
from in_turns import PLAIN, answer_in_turns, engine_beside

from paceline import LLM, SamplingParams
from paceline.bench.llm_engine import prompt_ids
from paceline.drafters.eagle3 import Eagle3Drafter
from paceline.drafters.registry import register_drafter
from paceline.errors import DrafterError

CHAIN = "eagle3-chain"
COPYING = ("ngram", "suffix", "recycle")
LENGTHS = tuple(range(1, 9))
SCREEN_PROMPTS, SCREEN_TOKENS = 2, 64


@dataclass(frozen=True, slots=True)
class Setting:
    """``k``: most drafted tokens per step; ``None`` for ``none`` and ``auto``, who need none."""

    drafter: str
    k: int | None = None

    def __str__(self) -> str:
        return self.drafter if self.k is None else f"{self.drafter}, {self.k}"


AUTO = Setting("auto")
NONE = Setting(PLAIN)


@dataclass(slots=True)
class FixedResult:
    """``speedups``: by setting, one per repeat, over ``none``. ``screened``: tokens per second ÷ that of
    ``none``, one run each. ``identical``: share of replies that equal those of ``none``.
    """

    workload: str
    screened: dict[str, float]
    speedups: dict[str, list[float]]
    identical: float

    @property
    def best_fixed(self) -> str:
        """The fixed setting with the highest median speed-up."""
        fixed = [name for name in self.speedups if name != "auto"]
        return max(fixed, key=lambda name: statistics.median(self.speedups[name]))

    @property
    def shares(self) -> list[float]:
        """Speed of ``auto`` ÷ speed of the best fixed setting, by repeat."""
        best = self.speedups[self.best_fixed]
        return [mine / theirs for mine, theirs in zip(self.speedups["auto"], best, strict=True)]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def add_chain(llm: LLM) -> tuple[str, ...]:
    """Make the head's chains a drafter beside its trees; return the drafters this model has."""
    try:
        eagle = llm.engine.drafter("eagle3")
    except DrafterError:  # no head comes with Paceline for it
        return COPYING
    assert isinstance(eagle, Eagle3Drafter)
    options = replace(eagle.options, width=1)
    register_drafter(CHAIN, lambda target: Eagle3Drafter(eagle.head, options=options))
    return (*COPYING, "eagle3", CHAIN)


def run_workload(
    llm: LLM, workload: str, drafters: Sequence[str], num_prompts: int, max_tokens: int, repeats: int
) -> FixedResult:
    """Screen all settings with two prompts, then measure each drafter's best beside ``auto``.

    (The best three of all came from two drafters by chance, and a third one was faster than they.)
    """
    prompts = [
        prompt_ids(llm, [{"role": "user", "content": turn}]) for turn in turns_of(workload)[:num_prompts]
    ]
    settings = [Setting(name, k) for name in drafters for k in LENGTHS]
    screened = {}
    for setting in settings:
        plain, own = _speeds(llm, (NONE, setting), prompts[:SCREEN_PROMPTS], SCREEN_TOKENS)
        screened[setting] = own[0] / plain[0]
    finalists = [
        max((s for s in settings if s.drafter == name), key=screened.__getitem__) for name in drafters
    ]
    lineup = [NONE, AUTO, *finalists]
    speedups: dict[Setting, list[float]] = {setting: [] for setting in lineup[1:]}
    same: list[bool] = []
    for repeat in range(repeats):
        order = lineup[repeat % len(lineup) :] + lineup[: repeat % len(lineup)]
        runs = dict(zip(order, _speeds(llm, order, prompts, max_tokens), strict=True))
        for setting, values in speedups.items():
            values.append(runs[setting][0] / runs[NONE][0])
            same += [mine == plain for mine, plain in zip(runs[setting][1], runs[NONE][1], strict=True)]
    return FixedResult(
        workload,
        {str(setting): value for setting, value in screened.items()},
        {str(setting): values for setting, values in speedups.items()},
        sum(same) / len(same),
    )


def _speeds(
    llm: LLM, settings: Sequence[Setting], prompts: Sequence[Sequence[int]], max_tokens: int
) -> list[tuple[float, list[tuple[int, ...]]]]:
    """Return each setting's tokens per second over ``prompts``, one after another, and its replies."""
    engines = [engine_beside(llm, setting.drafter) for setting in settings]
    params = [
        SamplingParams(
            temperature=0.0, max_tokens=max_tokens, drafter=setting.drafter, num_draft_tokens=setting.k
        )
        for setting in settings
    ]
    runs = [answer_in_turns(engines, [prompt], params) for prompt in prompts]
    return [
        (
            sum(answer.num_tokens for answer in answers) / sum(answer.seconds for answer in answers),
            [answer.replies[0] for answer in answers],
        )
        for answers in zip(*runs, strict=True)
    ]
