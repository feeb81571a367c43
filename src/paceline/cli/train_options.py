"""Options that the commands of ``paceline train`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
Requests = Annotated[int, typer.Option("--requests", metavar="N", help="Replies made at once.")]
Epochs = Annotated[float, typer.Option("--epochs", metavar="E", help="Passes over the data.")]
TokensPerStep = Annotated[
    int, typer.Option("--tokens-per-step", metavar="N", help="Supervised tokens of one step.")
]
Rate = Annotated[float | None, typer.Option("--lr", metavar="RATE", help="Peak of the learning rate.")]
HeldOut = Annotated[float, typer.Option("--held-out", metavar="SHARE", help="Share of the rows that judge.")]
EvalPrompts = Annotated[
    Path | None, typer.Option("--eval-prompts", metavar="FILE", help="Evaluate on these prompts instead.")
]
NumEval = Annotated[int, typer.Option("--num-eval", metavar="N", help="Prompts to evaluate on.")]
EvalTemperatures = Annotated[
    str, typer.Option("--eval-temperatures", metavar="T,…", help="Temperatures of evaluation.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of everything random.")]
Until = Annotated[str, typer.Option("--until", metavar="STAGE", help="Stop behind it.")]
Redo = Annotated[
    str | None, typer.Option("--redo", metavar="STAGE", help="Make this stage and those behind anew.")
]
Inspect = Annotated[
    int | None, typer.Option("--inspect", metavar="N", help="Show which tokens of N rows are supervised.")
]
