"""The stage evaluate of a run: serve held-out prompts with what the fit wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.errors import ConfigError
from paceline.train.evaluate import EvalPrompt, Served, evaluate
from paceline.train.prompts import prompt_ids, read_prompts
from paceline.train.split import held_out_indices, training_rows
from paceline.train.stage import Json
from paceline.train.workplace import file_digests

if TYPE_CHECKING:
    from paceline.train.pipeline import Pipeline

EVAL_REQUESTS = 1
"""One after another: drafters keep silent in full batches, and a head is judged by what it drafts."""


def evaluate_drafter(run: Pipeline, drafter: str) -> None:
    """Serve held-out prompts with what the fit wrote."""
    options = run.options
    inputs = {
        "fit": run.results["fit"].digest,
        "prompts": [] if options.eval_prompts is None else file_digests([options.eval_prompts]),
        "num": options.num_eval,
        "temperatures": options.eval_temperatures,
        "max_tokens": options.reply.max_tokens,
    }
    run.stage("evaluate", inputs, lambda folder: _evaluate(run, drafter))


def _evaluate(run: Pipeline, drafter: str) -> Json:
    prompts = eval_prompts(run)
    llm = run.place.open_llm(drafter, EVAL_REQUESTS)
    temperatures = run.options.eval_temperatures
    run.reporter.start("evaluate", len(prompts) * len(temperatures), "replies")
    served: list[Served] = []
    for temperature in temperatures:
        served += evaluate(
            llm,
            prompts,
            temperature,
            run.options.reply.max_tokens,
            progress=lambda replies, tokens: run.reporter.advance(replies, f"{tokens} tokens"),
        )
    for figures in served:
        at = ", ".join(f"{share:.2f}" for share in figures.conditional_acceptance_at)
        run.reporter.say(
            f"evaluate: {figures.source}, temperature {figures.temperature:g}: tokens_per_step "
            f"{figures.tokens_per_step:.3f} ({figures.varied_tokens_per_step:.3f} without loops), "
            f"acceptance by position {at}"
        )
    return {"served": [figures.to_json() for figures in served]}


def eval_prompts(run: Pipeline) -> list[EvalPrompt]:
    """Return held-out prompts, or those of the file given, spread over all of them.

    Raises ``ConfigError`` when none is short enough.
    """
    options = run.options
    if options.eval_prompts is None:
        held = set(held_out_indices([row.id for row in training_rows(run.reply_files)], options.held_out))
        rows = [row for index, row in enumerate(training_rows(run.reply_files)) if index in held]
        found = [EvalPrompt(row.source, row.prompt) for row in rows]
    else:
        given = read_prompts([options.eval_prompts]).prompts
        with run.place.open_files() as files:
            found = [EvalPrompt(prompt.source, tuple(prompt_ids(files, prompt))) for prompt in given]
    short = [prompt for prompt in found if len(prompt.ids) <= options.reply.max_prompt_tokens]
    if not short:
        raise ConfigError(
            f"none of {len(found)} prompts to evaluate with is within "
            f"{options.reply.max_prompt_tokens} tokens: raise --max-prompt-tokens or name --eval-prompts"
        )
    count = min(options.num_eval, len(short))
    # Files are often sorted by task: the first prompts would stand for one of them.
    return [short[index * len(short) // count] for index in range(count)]
