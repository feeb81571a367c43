"""Measuring drafters against ``none``, in turns.

Every prompt is answered by each drafter before the next prompt comes, in an order that rotates, so that a
slow moment of the machine falls on all of them alike. A warm-up round is not counted. Before each repeat the
engine forgets what drafters learnt: otherwise the second repeat would find its own replies in the memory of
``suffix`` and ``recycle``, and any speed could be had by repeating often enough. Within a repeat they may
learn from earlier prompts, as they do in service.

In batches, prompts of one workload are answered at once; the last batch is filled up with its own prompts
again, so that every batch is as large as asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Protocol

from paceline.bench.datasets import BenchPrompt, Message
from paceline.bench.records import Measured, Reply, RunResult
from paceline.bench.summary import Conditions, Reference, summarize_run
from paceline.config import check_float, check_int
from paceline.errors import ConfigError, PromptError
from paceline.theory.cost_table import CostTable

PLAIN = "none"
WARM_UP_TOKENS = 16
MAX_BATCH = 256
"""The engine lays a row for each request into one forward of at most 512 rows, and drafts need some too."""


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """How to measure.

    ``max_tokens``: cap of one reply; end-of-text is honoured before it. ``temperature``: 0 is greedy; above,
    every reply has the seed ``seed`` + the number of its prompt, so that all drafters face one noise.
    ``unseeded``: every reply is drawn with fresh noise instead, as requests without a seed are served; the
    drafters then give different texts and speeds are compared per token. ``first_turn``: ask only the first
    turn of each conversation. ``batch``: conversations at once.
    """

    drafters: tuple[str, ...]
    max_tokens: int = 128
    repeats: int = 3
    temperature: float = 0.0
    seed: int = 0
    unseeded: bool = False
    first_turn: bool = False
    batch: int = 1

    def __post_init__(self) -> None:
        check_int("max_tokens", self.max_tokens, 1)
        check_int("repeat", self.repeats, 1)
        check_float("temperature", self.temperature, 0.0, 100.0)
        check_int("seed", self.seed, 0)
        check_int("batch", self.batch, 1, MAX_BATCH)
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

    def replies(
        self,
        drafter: str,
        conversations: Sequence[Sequence[Message]],
        max_tokens: int,
        temperature: float,
        seeds: Sequence[int | None],
    ) -> list[Measured]:
        """Answer conversations at once, in their order; without a seed, with fresh noise.

        Raises the errors of ``paceline.errors``.
        """
        ...


OnReply = Callable[[Reply | None], None]
"""Called after each reply; with ``None`` for those of the warm-up."""


def batches(prompts: Sequence[BenchPrompt], size: int) -> list[tuple[int, ...]]:
    """Return the numbers of the prompts of each batch; the prompts of a batch are of one workload.

    A last batch that falls short is filled up with its own prompts, over and over. Prompts of other batches
    would do it more varied, but drafters have seen those already.
    """
    if size == 1:
        return [(number,) for number in range(len(prompts))]
    groups = []
    for workload in dict.fromkeys(prompt.workload for prompt in prompts):
        numbers = [number for number, prompt in enumerate(prompts) if prompt.workload == workload]
        for start in range(0, len(numbers), size):
            fill = cycle(numbers[start : start + size])
            groups.append(tuple(next(fill) for _ in range(size)))
    return groups


def count_replies(prompts: Sequence[BenchPrompt], settings: BenchSettings) -> int:
    """Return how many replies :func:`run_bench` gives, those of the warm-up and the reference included."""

    def turns(size: int) -> int:
        groups = batches(prompts, size)
        return sum(settings.num_turns(prompts[number]) for group in groups for number in group)

    reference = turns(1) if settings.batch > 1 and not settings.unseeded else 0
    warm_up = settings.batch * len(settings.lineup)
    return warm_up + len(settings.lineup) * settings.repeats * turns(settings.batch) + reference


def run_bench(
    engine: BenchEngine,
    prompts: Sequence[BenchPrompt],
    settings: BenchSettings,
    on_reply: OnReply = lambda _reply: None,
    costs: Callable[[], CostTable | None] = lambda: None,
) -> list[RunResult]:
    """Return one result for each workload and drafter, in the order of the prompts and of the line-up.

    ``costs``: gives the model's cost table, for the predicted speed-up, once all drafters have been built. In
    batches, plain decoding answers every
    prompt once alone first: that is what replies are compared with.
    """
    engine.start_afresh(settings.lineup)
    for drafter in settings.lineup:
        _warm_up(engine, drafter, prompts[0], settings, on_reply)
    reference: Reference | None = None
    if settings.batch > 1 and not settings.unseeded:
        alone = replace(settings, drafters=(PLAIN,), repeats=1, batch=1)
        reference = {r.key: r.measured.token_ids for r in _measure(engine, prompts, alone, on_reply)}
    replies = list(_measure(engine, prompts, settings, on_reply))
    conditions = Conditions(settings.temperature, settings.unseeded, settings.batch, reference, costs())
    workloads = dict.fromkeys(prompt.workload for prompt in prompts)
    return [
        summarize_run(workload, drafter, engine.model_name, replies, conditions)
        for workload in workloads
        for drafter in settings.lineup
    ]


def _warm_up(
    engine: BenchEngine, drafter: str, prompt: BenchPrompt, settings: BenchSettings, on_reply: OnReply
) -> None:
    asked = [prompt.messages([])] * settings.batch
    seeds = [settings.seed_of(0)] * settings.batch
    for _ in engine.replies(drafter, asked, WARM_UP_TOKENS, settings.temperature, seeds):
        on_reply(None)


def _measure(
    engine: BenchEngine, prompts: Sequence[BenchPrompt], settings: BenchSettings, on_reply: OnReply
) -> Iterator[Reply]:
    """Yield all measured replies."""
    groups = batches(prompts, settings.batch)
    for repeat in range(settings.repeats):
        engine.start_afresh(settings.lineup)
        for index, numbers in enumerate(groups):
            for drafter in _rotated(settings.lineup, index + repeat):
                talk = _Talk(drafter, repeat, numbers, None if settings.batch == 1 else index)
                for reply in _converse(engine, talk, prompts, settings):
                    on_reply(reply)
                    yield reply


def _rotated(lineup: tuple[str, ...], by: int) -> tuple[str, ...]:
    start = by % len(lineup)
    return lineup[start:] + lineup[:start]


@dataclass(frozen=True, slots=True)
class _Talk:
    """What one drafter answers at once: ``numbers`` of prompts; ``batch``: which, unless they are alone."""

    drafter: str
    repeat: int
    numbers: tuple[int, ...]
    batch: int | None


def _converse(
    engine: BenchEngine, talk: _Talk, prompts: Sequence[BenchPrompt], settings: BenchSettings
) -> Iterator[Reply]:
    """Yield the replies to every turn of the prompts of ``talk``, earlier replies kept."""
    texts: list[list[str]] = [[] for _ in talk.numbers]
    turns = [settings.num_turns(prompts[number]) for number in talk.numbers]
    for turn in range(max(turns)):
        places = [place for place, count in enumerate(turns) if turn < count]
        numbers = [talk.numbers[place] for place in places]
        asked = [prompts[number] for number in numbers]
        said = [texts[place] for place in places]
        measured = _ask(engine, talk.drafter, numbers, asked, said, settings)
        for place, number, reply in zip(places, numbers, measured, strict=True):
            texts[place].append(reply.text)
            yield Reply(number, prompts[number], turn, talk.repeat, talk.drafter, reply, talk.batch)


def _ask(
    engine: BenchEngine,
    drafter: str,
    numbers: Sequence[int],
    prompts: Sequence[BenchPrompt],
    texts: Sequence[Sequence[str]],
    settings: BenchSettings,
) -> list[Measured]:
    """Answer the next turn of prompts at once; an error says whose it is."""
    asked = [prompt.messages(said) for prompt, said in zip(prompts, texts, strict=True)]
    seeds = [settings.seed_of(number) for number in numbers]
    try:
        return engine.replies(drafter, asked, settings.max_tokens, settings.temperature, seeds)
    except PromptError as error:
        names = ", ".join(dict.fromkeys(prompt.id for prompt in prompts))
        where = f"{prompts[0].category} prompt {names}, turn {len(texts[0]) + 1}"
        raise PromptError(f"{where}: {error}") from error
