"""``paceline train``: from a target and prompts to a measured drafter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli import options
from paceline.cli import train_options as shared
from paceline.cli.train_export import export
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.train.options import FitOptions, TrainOptions

app = typer.Typer(help="Train drafters for a model of yours.", no_args_is_help=True)


@app.callback()
def train() -> None:
    """Train drafters for a model of yours."""


def eagle3(
    target: shared.Target,
    out: shared.Out,
    prompts: shared.Files = None,
    replies: shared.Replies = None,
    temperatures: shared.Temperatures = "0:0.55,0.7:0.25,1:0.2",
    max_tokens: options.MaxTokens = 256,
    max_prompt_tokens: shared.MaxPromptTokens = 512,
    requests: shared.Requests = 64,
    layers: shared.Layers = None,
    draft_vocab: shared.DraftVocab = None,
    head_layers: Annotated[int, typer.Option("--head-layers", metavar="N", help="Layers of the head.")] = 1,
    parallel: Annotated[
        bool, typer.Option("--parallel", help="Fit a head that drafts in one pass; measured, not exported.")
    ] = False,
    epochs: shared.Epochs = 3.0,
    tokens_per_step: shared.TokensPerStep = 2048,
    learning_rate: shared.Rate = None,
    setting: shared.Setting = None,
    held_out: shared.HeldOut = 0.02,
    eval_prompts: shared.EvalPrompts = None,
    num_eval: shared.NumEval = 64,
    eval_temperatures: shared.EvalTemperatures = "0",
    max_disk: shared.MaxDisk = None,
    threads: options.Threads = None,
    quant: options.QuantName = "none",
    seed: shared.Seed = 0,
    until: shared.Until = "export",
    redo: shared.Redo = None,
    inspect: shared.Inspect = None,
) -> None:
    """Train an EAGLE-3 head: regenerate, capture, vocabulary, fit, evaluate, parity, export.

    Example: paceline train eagle3 --target smollm2-135m --prompts prompts.jsonl --out runs/smol

    Every stage is resumed where it was interrupted, or taken from disk when it is done. The head ends up in
    DIR/export/head and is used with --drafter eagle3:DIR/export/head.
    """
    from paceline.train.regenerate import ReplySettings, parse_temperatures
    from paceline.train.resources import parse_size

    reply = ReplySettings(parse_temperatures(temperatures), max_tokens, max_prompt_tokens, seed)
    run = _options(
        target=target,
        out=out,
        prompts=tuple(prompts or ()),
        replies=tuple(replies or ()),
        quant=options.quant_named(quant),
        threads=threads,
        reply=reply,
        num_requests=requests,
        draft_vocab=draft_vocab,
        held_out=held_out,
        num_eval=num_eval,
        eval_prompts=eval_prompts,
        eval_temperatures=options.numbers(eval_temperatures, "--eval-temperatures", float),
        max_disk=None if max_disk is None else parse_size(max_disk),
        state_layers=options.numbers(layers, "--layers", int),
        fit=_fit_options(epochs, tokens_per_step, head_layers, seed, learning_rate, setting or []),
        parallel=parallel,
    )
    _work(run, until, redo, inspect)


def draft_model(
    target: shared.Target,
    out: shared.Out,
    prompts: shared.Files = None,
    replies: shared.Replies = None,
    temperatures: shared.Temperatures = "0:0.55,0.7:0.25,1:0.2",
    max_tokens: options.MaxTokens = 256,
    max_prompt_tokens: shared.MaxPromptTokens = 512,
    requests: shared.Requests = 64,
    draft_layers: Annotated[
        int, typer.Option("--draft-layers", metavar="N", help="Layers of the draft model.")
    ] = 4,
    draft_vocab: Annotated[
        int | None,
        typer.Option(
            "--draft-vocab", metavar="N", help="Restrict the loss to the N most frequent tokens [all]."
        ),
    ] = None,
    epochs: shared.Epochs = 3.0,
    tokens_per_step: shared.TokensPerStep = 2048,
    learning_rate: shared.Rate = None,
    setting: shared.Setting = None,
    held_out: shared.HeldOut = 0.02,
    eval_prompts: shared.EvalPrompts = None,
    num_eval: shared.NumEval = 64,
    eval_temperatures: shared.EvalTemperatures = "0",
    max_disk: shared.MaxDisk = None,
    threads: options.Threads = None,
    quant: options.QuantName = "none",
    seed: shared.Seed = 0,
    until: shared.Until = "export",
    redo: shared.Redo = None,
    inspect: shared.Inspect = None,
) -> None:
    """Distil a small draft model of Llama's form from the target, by the same stages.

    Example: paceline train draft-model --target smollm2-135m --prompts prompts.jsonl --out runs/draft

    It ends up in DIR/export and is used with --drafter draft_model:DIR/export/draft.gguf. An EAGLE-3 head is
    faster to train and to draft with.
    """
    from paceline.train.regenerate import ReplySettings, parse_temperatures
    from paceline.train.resources import parse_size

    reply = ReplySettings(parse_temperatures(temperatures), max_tokens, max_prompt_tokens, seed)
    run = _options(
        target=target,
        out=out,
        prompts=tuple(prompts or ()),
        replies=tuple(replies or ()),
        quant=options.quant_named(quant),
        threads=threads,
        reply=reply,
        num_requests=requests,
        draft_vocab=draft_vocab,
        held_out=held_out,
        num_eval=num_eval,
        eval_prompts=eval_prompts,
        eval_temperatures=options.numbers(eval_temperatures, "--eval-temperatures", float),
        max_disk=None if max_disk is None else parse_size(max_disk),
        fit=_fit_options(epochs, tokens_per_step, draft_layers, seed, learning_rate, setting or []),
        kind="draft-model",
    )
    _work(run, until, redo, inspect)


app.command()(eagle3)
app.command()(draft_model)
app.command()(export)


def _options(**values: Any) -> TrainOptions:
    from paceline.train.options import TrainOptions

    return TrainOptions(**values)


def _work(run: TrainOptions, until: str, redo: str | None, inspect: int | None) -> None:
    from paceline.cli.train_report import BarReporter
    from paceline.train.options import stage_named
    from paceline.train.pipeline import Pipeline

    stage_named(until, "--until")
    if redo is not None:
        stage_named(redo, "--redo")
    with BarReporter() as reporter:
        if inspect is not None:
            from paceline.cli.train_report import show_rows

            show_rows(Pipeline(run, reporter), inspect)
            return
        try:
            Pipeline(run, reporter).run(until, redo)
        except KeyboardInterrupt:
            reporter.stop()
            reporter.say("interrupted: the same command goes on from here")
            raise


def _fit_options(
    epochs: float, tokens: int, head_layers: int, seed: int, rate: float | None, settings: list[str]
) -> FitOptions:
    from paceline.train.options import FitOptions

    values: dict[str, Any] = {} if rate is None else {"learning_rate": rate}
    for text in settings:
        name, sign, value = text.partition("=")
        if not (sign and name and value):
            raise ConfigError(f"--set {text!r}: give NAME=VALUE, e.g. optimizer=adamw or keep=1,1,0.5")
        values[name.strip()] = _value(value.strip())
    return FitOptions(epochs, tokens, head_layers, seed, values)


def _value(text: str) -> Any:
    """Return a whole number, a number, a tuple of numbers (with a comma), or the text."""
    if "," in text:
        return tuple(_value(part.strip()) for part in text.split(",") if part.strip())
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
