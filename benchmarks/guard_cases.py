"""What ``never_slower.py`` serves: prompts of each kind, as many different ones as a batch is wide."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from paceline import LLM
from paceline.bench.datasets import load_workload
from paceline.bench.llm_engine import prompt_ids
from paceline.drafters.base import TokenSampler
from paceline.drafters.scripted import ScriptedDrafter
from paceline.records import Draft

WORKLOADS = ("chat", "code", "math", "summarize", "extract", "rewrite")
BATCHES = (1, 8, 32)
WRONG = "always-wrong"
TOKENS = {1: 256, 8: 128, 32: 96}
"""Most tokens of a reply by batch, so that the whole table takes minutes."""
ROUNDS = {1: 10, 8: 10, 32: 6}
RANDOM_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Case:
    """``text``: a workload, ``mixed`` (all of them in turn) or ``random``. ``drafter``: beside ``none``.

    ``runs_on``: whether replies go on to the cap whatever they say, so that both sides write as much.
    """

    text: str
    batch: int
    temperature: float = 0.0
    drafter: str = "auto"

    @property
    def runs_on(self) -> bool:
        return self.temperature > 0.0 or self.text == "random" or self.drafter == WRONG

    @property
    def label(self) -> str:
        """What stands in the table."""
        if self.drafter == WRONG:
            return f"{WRONG} drafter"
        return self.text if self.temperature == 0.0 else f"{self.text}, temperature {self.temperature:g}"

    @property
    def key(self) -> str:
        return f"{self.label} / {self.batch}"


def guard_cases(batches: Sequence[int], only: Sequence[str]) -> list[Case]:
    """Return the cases whose label holds one of ``only``; all without any."""
    cases = []
    for batch in batches:
        cases += [Case(name, batch) for name in (*WORKLOADS, "random")]
        cases += [Case("mixed", batch, 1.0), Case("mixed", batch, 1.5), Case("mixed", batch, drafter=WRONG)]
    return [case for case in cases if not only or any(part in case.label for part in only)]


def prompts_for(llm: LLM, case: Case, round_number: int) -> list[list[int]]:
    """Return one batch of token ids, other ones in each round.

    Where a text has too few prompts, they come again with a number in front: the same prompt twice would be
    read once and, greedily, be copied from the first reply.
    """
    numbers = range(round_number * case.batch, (round_number + 1) * case.batch)
    if case.text == "random":
        return [random_prompt(llm, number) for number in numbers]
    turns = turns_of(case.text)
    return [_asked(llm, turns[number % len(turns)], number // len(turns)) for number in numbers]


def turns_of(text: str) -> list[str]:
    """Return the first turns of a workload's prompts; of ``mixed`` one of each workload in turn."""
    names = WORKLOADS if text == "mixed" else (text,)
    columns = [[prompt.turns[0] for prompt in load_workload(name)] for name in names]
    shortest = min(map(len, columns))
    return list(chain.from_iterable(zip(*(column[:shortest] for column in columns), strict=True)))


def _asked(llm: LLM, turn: str, again: int) -> list[int]:
    content = f"({again}) {turn}" if again else turn
    return prompt_ids(llm, [{"role": "user", "content": content}])


def random_prompt(llm: LLM, number: int) -> list[int]:
    """Return token ids drawn at random, decoded and encoded again: a text, but one that says nothing."""
    rng = random.Random(number)
    tokenizer = llm.tokenizer
    drawn = [rng.randrange(len(tokenizer.tokens)) for _ in range(RANDOM_TOKENS)]
    return tokenizer.encode(tokenizer.decode(drawn, skip_special=True))


def wrong_drafter(token: int) -> ScriptedDrafter:
    """Return a drafter that always drafts a chain of ``token``, which no reply holds."""

    def script(known: tuple[int, ...], budget: int, sampler: TokenSampler) -> Draft:
        return Draft.chain([token] * min(budget, 7))

    return ScriptedDrafter(script, name=WRONG)
