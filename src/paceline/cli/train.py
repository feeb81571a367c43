"""``paceline train``: from a target and prompts to a measured draft head."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli import options
from paceline.cli.train_export import export
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.train.options import FitOptions, TrainOptions

app = typer.Typer(help="Train drafters for a model of yours.", no_args_is_help=True)


@app.callback()
def train() -> None:
    """Train drafters for a model of yours."""


Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--prompts",
        "-p",
        metavar="FILE",
        help="JSONL with messages, prompt, conversations (ShareGPT) or turns; may be given several times.",
    ),
]
Target = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="MODEL",
        help="A name from `paceline models`, a GGUF file, a model folder, or hf:org/repo[:file].",
    ),
]
Out = Annotated[
    Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the run; run again to go on.")
]
Replies = Annotated[
    list[Path] | None,
    typer.Option(
        "--replies", metavar="FILE", help="Rows the target has answered already; no --prompts then."
    ),
]
Temperatures = Annotated[
    str,
    typer.Option(
        "--temperatures", metavar="T:SHARE,…", help="Mix of temperatures of the regenerated replies."
    ),
]
MaxPromptTokens = Annotated[
    int, typer.Option("--max-prompt-tokens", metavar="N", help="Longer prompts are skipped and counted.")
]
Layers = Annotated[
    str | None,
    typer.Option("--layers", metavar="A,B,C", help="Target layers whose inputs are read [2, L//2, L-3]."),
]
DraftVocab = Annotated[
    int | None,
    typer.Option("--draft-vocab", metavar="N", help="Tokens the head can draft, a multiple of 16 [8192]."),
]
MaxDisk = Annotated[
    str | None,
    typer.Option("--max-disk", metavar="SIZE", help="Most disk for captured states, e.g. 20GB [no limit]."),
]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting of the fit, e.g. --set optimizer=adamw."),
]


def eagle3(
    target: Target,
    out: Out,
    prompts: Files = None,
    replies: Replies = None,
    temperatures: Temperatures = "0:0.55,0.7:0.25,1:0.2",
    max_tokens: options.MaxTokens = 256,
    max_prompt_tokens: MaxPromptTokens = 512,
    requests: Annotated[int, typer.Option("--requests", metavar="N", help="Replies made at once.")] = 64,
    layers: Layers = None,
    draft_vocab: DraftVocab = None,
    head_layers: Annotated[int, typer.Option("--head-layers", metavar="N", help="Layers of the head.")] = 1,
    epochs: Annotated[float, typer.Option("--epochs", metavar="E", help="Passes over the data.")] = 3.0,
    tokens_per_step: Annotated[
        int, typer.Option("--tokens-per-step", metavar="N", help="Supervised tokens of one step.")
    ] = 2048,
    learning_rate: Annotated[
        float | None, typer.Option("--lr", metavar="RATE", help="Peak of the learning rate.")
    ] = None,
    setting: Setting = None,
    held_out: Annotated[
        float, typer.Option("--held-out", metavar="SHARE", help="Share of the rows that judge.")
    ] = 0.02,
    eval_prompts: Annotated[
        Path | None, typer.Option("--eval-prompts", metavar="FILE", help="Evaluate on these prompts instead.")
    ] = None,
    num_eval: Annotated[int, typer.Option("--num-eval", metavar="N", help="Prompts to evaluate on.")] = 64,
    eval_temperatures: Annotated[
        str, typer.Option("--eval-temperatures", metavar="T,…", help="Temperatures of evaluation.")
    ] = "0",
    max_disk: MaxDisk = None,
    threads: options.Threads = None,
    quant: options.QuantName = "none",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of everything random.")] = 0,
    until: Annotated[str, typer.Option("--until", metavar="STAGE", help="Stop behind it.")] = "export",
    redo: Annotated[
        str | None, typer.Option("--redo", metavar="STAGE", help="Make this stage and those behind anew.")
    ] = None,
    inspect: Annotated[
        int | None, typer.Option("--inspect", metavar="N", help="Show which tokens of N rows are supervised.")
    ] = None,
) -> None:
    """Train an EAGLE-3 head: regenerate, capture, vocabulary, fit, evaluate, parity, export.

    Example: paceline train eagle3 --target smollm2-135m --prompts prompts.jsonl --out runs/smol

    Every stage is resumed where it was interrupted, or taken from disk when it is done. The head ends up in
    DIR/export/head and is used with --drafter eagle3:DIR/export/head.
    """
    from paceline.train.regenerate import ReplySettings, parse_temperatures
    from paceline.train.resources import parse_size

    reply = ReplySettings(parse_temperatures(temperatures), max_tokens, max_prompt_tokens, seed)
    fit = _fit_options(epochs, tokens_per_step, head_layers, seed, learning_rate, setting or [])
    run = _options(
        target=target,
        out=out,
        prompts=tuple(prompts or ()),
        replies=tuple(replies or ()),
        quant=options.quant_named(quant),
        threads=threads,
        reply=reply,
        num_requests=requests,
        state_layers=options.numbers(layers, "--layers", int),
        draft_vocab=draft_vocab,
        held_out=held_out,
        num_eval=num_eval,
        eval_prompts=eval_prompts,
        eval_temperatures=options.numbers(eval_temperatures, "--eval-temperatures", float),
        max_disk=None if max_disk is None else parse_size(max_disk),
        fit=fit,
    )
    _work(run, until, redo, inspect)


app.command()(eagle3)
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
