"""Measuring drafters against ``none``, in turns.

Every prompt is answered by each drafter before the next prompt comes, in an order that rotates, so that a
slow moment of the machine falls on all of them alike. A warm-up round is not counted. Before each repeat the
engine forgets what drafters learnt: otherwise the second repeat would find its own replies in the memory of
``suffix`` and ``recycle``, and any speed could be had by repeating often enough. Within a repeat they may
learn from earlier prompts, as they do in service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from paceline.bench.datasets import BenchPrompt, Message
from paceline.bench.records import Measured, Reply, RunResult, summarize_run
from paceline.config import check_float, check_int
from paceline.errors import ConfigError, PromptError

PLAIN = "none"
WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """How to measure.

    ``max_tokens``: cap of one reply; end-of-text is honoured before it. ``temperature``: 0 is greedy; above,
    every reply has the seed ``seed`` + the number of its prompt, so that all drafters face one noise.
    ``unseeded``: every reply is drawn with fresh noise instead, as requests without a seed are served; the
    drafters then give different texts and speeds are compared per token. ``first_turn``: ask only the first
    turn of each conversation.
    """

    drafters: tuple[str, ...]
    max_tokens: int = 128
    repeats: int = 3
    temperature: float = 0.0
    seed: int = 0
    unseeded: bool = False
    first_turn: bool = False

    def __post_init__(self) -> None:
        check_int("max_tokens", self.max_tokens, 1)
        check_int("repeat", self.repeats, 1)
        check_float("temperature", self.temperature, 0.0, 100.0)
        check_int("seed", self.seed, 0)
        if self.unseeded and self.temperature == 0.0:
            raise ConfigError("unseeded=True does nothing at temperature=0: raise the temperature")
        if self.unseeded and self.seed:
            raise ConfigError(f"seed={self.seed} does nothing with unseeded=True: leave one of them out")

    @property
    def lineup(self) -> tuple[str, ...]:
        """The drafters to run: ``none`` first, each one once."""
        return tuple(dict.fromkeys((PLAIN, *self.drafters)))

    def num_turns(self, prompt: BenchPrompt) -> int:
        """How many turns of ``prompt`` are asked."""
        return 1 if self.first_turn else len(prompt.turns)

    def seed_of(self, number: int) -> int | None:
        """Return the seed of the replies to prompt ``number``."""
        return None if self.unseeded else self.seed + number


class BenchEngine(Protocol):
    """What the bench needs of an engine."""

    @property
    def model_name(self) -> str: ...

    def start_afresh(self, drafters: Sequence[str]) -> None:
        """Drop everything that was learnt from earlier requests, and build these drafters anew.

        Raises ``ConfigError`` or ``DrafterError`` for one that cannot be built.
        """
        ...

    def reply(
        self, drafter: str, messages: Sequence[Message], max_tokens: int, temperature: float, seed: int | None
    ) -> Measured:
        """Answer one conversation; without a seed, with fresh noise.

        Raises the errors of ``paceline.errors``.
        """
        ...


OnReply = Callable[[Reply | None], None]
"""Called after each reply; with ``None`` for those of the warm-up."""


def count_replies(prompts: Sequence[BenchPrompt], settings: BenchSettings) -> int:
    """Return how many replies a run gives, those of the warm-up included."""
    turns = sum(settings.num_turns(prompt) for prompt in prompts)
    return len(settings.lineup) * (1 + settings.repeats * turns)


def run_bench(
    engine: BenchEngine,
    prompts: Sequence[BenchPrompt],
    settings: BenchSettings,
    on_reply: OnReply = lambda _reply: None,
) -> list[RunResult]:
    """Return one result for each workload and drafter, in the order of the prompts and of the line-up."""
    engine.start_afresh(settings.lineup)
    for drafter in settings.lineup:
        messages = prompts[0].messages([])
        engine.reply(drafter, messages, WARM_UP_TOKENS, settings.temperature, settings.seed_of(0))
        on_reply(None)
    replies: list[Reply] = []
    for repeat in range(settings.repeats):
        engine.start_afresh(settings.lineup)
        for number, prompt in enumerate(prompts):
            for drafter in _rotated(settings.lineup, number + repeat):
                for reply in _converse(engine, number, prompt, drafter, repeat, settings):
                    replies.append(reply)
                    on_reply(reply)
    workloads = dict.fromkeys(prompt.workload for prompt in prompts)
    return [
        summarize_run(workload, drafter, engine.model_name, replies, unseeded=settings.unseeded)
        for workload in workloads
        for drafter in settings.lineup
    ]


def _rotated(lineup: tuple[str, ...], by: int) -> tuple[str, ...]:
    start = by % len(lineup)
    return lineup[start:] + lineup[:start]


def _converse(
    engine: BenchEngine,
    number: int,
    prompt: BenchPrompt,
    drafter: str,
    repeat: int,
    settings: BenchSettings,
) -> Iterator[Reply]:
    """Yield the replies to the turns of prompt ``number``, earlier replies kept."""
    texts: list[str] = []
    seed = settings.seed_of(number)
    for turn in range(settings.num_turns(prompt)):
        try:
            measured = engine.reply(
                drafter, prompt.messages(texts), settings.max_tokens, settings.temperature, seed
            )
        except PromptError as error:
            raise PromptError(f"{prompt.category} prompt {prompt.id}, turn {turn + 1}: {error}") from error
        texts.append(measured.text)
        yield Reply(number, prompt, turn, repeat, drafter, measured)
