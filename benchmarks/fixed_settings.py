"""``auto`` against every fixed {drafter} × k: all are screened; each drafter's best then in turns."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
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
DUELS_PER_REPEAT = 3


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
    ``none``, one run each. ``duel``: as ``speedups``, of ``auto`` and the best fixed setting alone, measured
    after that was chosen: who has won among five had luck besides. ``identical``: share of replies that equal
    those of ``none``.
    """

    workload: str
    screened: dict[str, float]
    speedups: dict[str, list[float]]
    duel: dict[str, list[float]]
    identical: float

    @property
    def best_fixed(self) -> str:
        """The fixed setting with the highest median speed-up."""
        return best_of(self.speedups)

    @property
    def shares(self) -> list[float]:
        """Speed of ``auto`` ÷ speed of the best fixed setting, by repeat of the duel."""
        best = self.duel[self.best_fixed]
        return [mine / theirs for mine, theirs in zip(self.duel["auto"], best, strict=True)]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def best_of(speedups: Mapping[str, Sequence[float]]) -> str:
    """Return the fixed setting with the highest median."""
    fixed = [name for name in speedups if name != "auto"]
    return max(fixed, key=lambda name: statistics.median(speedups[name]))


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
    """Screen all settings with two prompts, then measure each drafter's best beside ``auto``, then the best
    of those and ``auto`` again.

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
    matches = _Matches(llm, prompts, max_tokens)
    speedups = matches.play([AUTO, *finalists], repeats)
    best = next(setting for setting in finalists if str(setting) == best_of(speedups))
    duel = matches.play([AUTO, best], DUELS_PER_REPEAT * repeats)
    promised = {str(setting): value for setting, value in screened.items()}
    return FixedResult(workload, promised, speedups, duel, sum(matches.same) / len(matches.same))


class _Matches:
    """Settings in turns over the same prompts. ``same``: whether each reply equals that of ``none``."""

    def __init__(self, llm: LLM, prompts: Sequence[Sequence[int]], max_tokens: int) -> None:
        self._llm, self._prompts, self._max_tokens = llm, prompts, max_tokens
        self.same: list[bool] = []

    def play(self, settings: Sequence[Setting], repeats: int) -> dict[str, list[float]]:
        """Return the speed-ups over ``none`` of each setting, by repeat."""
        lineup = [NONE, *settings]
        speedups: dict[str, list[float]] = {str(setting): [] for setting in settings}
        for repeat in range(repeats):
            order = lineup[repeat % len(lineup) :] + lineup[: repeat % len(lineup)]
            found = _speeds(self._llm, order, self._prompts, self._max_tokens)
            runs = {str(setting): run for setting, run in zip(order, found, strict=True)}
            plain_speed, plain_replies = runs[str(NONE)]
            for name, values in speedups.items():
                speed, replies = runs[name]
                values.append(speed / plain_speed)
                self.same += [mine == plain for mine, plain in zip(replies, plain_replies, strict=True)]
        return speedups


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
