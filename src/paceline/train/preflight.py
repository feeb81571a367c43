"""Before a run starts: what it will need, and refusal where that cannot fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.errors import PromptError
from paceline.train.prompts import TrainPrompt, prompt_ids, read_prompts
from paceline.train.resources import check_disk, check_memory, disk_need, generation_memory
from paceline.train.split import training_rows
from paceline.train.stage import is_done
from paceline.train.vocabulary import check_size, of_target

if TYPE_CHECKING:
    from paceline.models.loading import ModelFiles
    from paceline.train.pipeline import Pipeline

SAMPLE = 200
"""Prompts whose lengths stand for all."""


@dataclass(frozen=True, slots=True)
class Expected:
    """``is_bound``: tokens are what the rows can hold at most, not what they do hold."""

    num_rows: int
    num_tokens: int
    is_bound: bool


def preflight(run: Pipeline) -> None:
    """Tell what the run needs; raise ``ConfigError`` when disk or memory cannot hold it, and for what a late
    stage would refuse after hours of work."""
    place = run.place
    check_size(place.draft_vocab, place.spec.vocab_size)
    if run.options.eval_prompts is not None:
        read_prompts([run.options.eval_prompts])
    expected = expect_rows(run)
    width = len(place.layers) * place.spec.hidden_size
    need = disk_need(expected.num_rows, expected.num_tokens, width, place.num_weights, run.options.max_disk)
    memory = generation_memory(place.weight_bytes, place.cache_bytes(run.options.num_requests))
    about = "at most " if expected.is_bound else ""
    run.reporter.say(
        f"{expected.num_rows} rows with {about}{expected.num_tokens} tokens; disk: up to {need.describe()}; "
        f"memory: {memory.describe()}"
    )
    check_disk(need, run.options.out)
    check_memory(memory, "the target", "lower --requests or --max-tokens")


def expect_rows(run: Pipeline) -> Expected:
    """Return how many rows and tokens there are, or will be at most while the target has not answered yet."""
    files = run.reply_files
    if run.options.replies or is_done(run.options.out, "regenerate"):
        sizes = [len(row.tokens) for row in of_target(training_rows(files), run.place.spec.vocab_size)]
        return Expected(len(sizes), sum(sizes), False)
    prompts = read_prompts(run.options.prompts).prompts
    step = max(1, len(prompts) // SAMPLE)
    with run.place.open_files() as target:
        lengths = [_length(target, prompt) for prompt in prompts[::step]]
    settings = run.options.reply
    kept = [length for length in lengths if length is not None and length <= settings.max_prompt_tokens]
    mean = sum(kept) / max(1, len(kept)) + settings.max_tokens
    num_rows = round(len(prompts) * len(kept) / len(lengths))
    return Expected(num_rows, round(num_rows * mean), True)


def _length(target: ModelFiles, prompt: TrainPrompt) -> int | None:
    """Return a prompt's tokens; ``None`` when the template refuses it, which regenerate counts."""
    try:
        return len(prompt_ids(target, prompt))
    except PromptError:
        return None
