"""How much cache a bench run needs, so that no batch waits for room that a larger cache would have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paceline.bench.datasets import BenchPrompt
from paceline.bench.llm_engine import prompt_ids
from paceline.bench.runner import BenchSettings, batches
from paceline.llm import DEFAULT_CONTEXT
from paceline.models.loading import load_model_files

_SPARE_TOKENS = 64
"""For each request: a block that is not full, and the rows of a draft behind the last token."""


def cache_tokens_wanted(
    model: str, prompts: Sequence[BenchPrompt], plan: Sequence[BenchSettings], context: int | None
) -> int:
    """Return the tokens of the largest batch of ``plan``, all turns and replies at full length together.

    A conversation counts no more than ``context``, the longest the engine takes. Raises what loading the
    model's files raises.
    """
    with load_model_files(model, max_context=context) as files:
        opening = [len(prompt_ids(files, prompt.messages([]))) for prompt in prompts]
        later = [
            sum(len(files.tokenizer.encode(turn)) + _SPARE_TOKENS for turn in prompt.turns[1:])
            for prompt in prompts
        ]
    longest = context or DEFAULT_CONTEXT

    def tokens(number: int, settings: BenchSettings) -> int:
        turns = settings.num_turns(prompts[number])
        asked = opening[number] + (later[number] if turns > 1 else 0) + turns * settings.max_tokens
        return min(asked, longest) + _SPARE_TOKENS

    wanted = [
        sum(tokens(number, settings) for number in group)
        for settings in plan
        for group in batches(prompts, settings.batch)
    ]
    return max(DEFAULT_CONTEXT, longest, *wanted)


def size_of(path: Path) -> int:
    """Return the bytes of a model's file, or of all files of its folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
