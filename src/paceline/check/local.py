"""All parts of the check of one model and its drafters, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.check.cache import CacheResult, check_cache
from paceline.check.law import LawResult, check_law
from paceline.check.progress import Progress, silent
from paceline.check.replies import CheckPrompt, RepliesResult, check_greedy, check_seeded
from paceline.check.subject import Subject
from paceline.config import Settings, check_int
from paceline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CheckSettings(Settings):
    """``max_tokens``: of each reply. ``num_draws``: of each test of a law. ``cache_rounds``: batches of four
    requests with random drafts. ``seed``: of all draws, so that a run can be repeated.
    """

    max_tokens: int = 64
    num_draws: int = 20_000
    cache_rounds: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        check_int("max_tokens", self.max_tokens, 2)
        check_int("num_draws", self.num_draws, 1000, hint="fewer notice next to nothing")
        check_int("cache_rounds", self.cache_rounds, 1)
        check_int("seed", self.seed, 0, 2**64 - 1)

    @classmethod
    def quick(cls, seed: int = 0) -> CheckSettings:
        """Return settings of a run that takes a fifth of the time and notices less."""
        return cls(max_tokens=32, num_draws=4_000, cache_rounds=4, seed=seed)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The results of all parts."""

    settings: CheckSettings
    drafters: tuple[str, ...]
    num_prompts: int
    greedy: RepliesResult
    seeded: RepliesResult
    cache: CacheResult
    law: LawResult

    @property
    def passed(self) -> bool:
        """Whether all parts hold."""
        return self.greedy.passed and self.seeded.passed and self.cache.passed and self.law.passed


def run_check(
    subject: Subject,
    prompts: Sequence[CheckPrompt],
    settings: CheckSettings,
    progress: Progress = silent,
) -> CheckResult:
    """Check ``subject`` on ``prompts``. Raises ``ConfigError`` without any, ``PromptError`` if too long."""
    if not prompts:
        raise ConfigError("there is no prompt to check with: give at least one")
    if not subject.drafters:
        raise ConfigError("there is no drafter to check: give at least one")
    greedy, plain = check_greedy(subject, prompts, settings.max_tokens, progress)
    seeded = check_seeded(subject, prompts, settings.max_tokens, greedy.noise, progress)
    cache = check_cache(subject, prompts, plain, settings.cache_rounds, settings.seed, progress)
    law = check_law(subject, prompts, plain, settings.num_draws, settings.seed, progress)
    return CheckResult(settings, tuple(subject.drafters), len(prompts), greedy, seeded, cache, law)
