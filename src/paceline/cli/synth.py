"""``paceline synth``: a model file of real dimensions with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def synth(
    like: Annotated[
        str,
        typer.Option(
            "--like", metavar="NAME", help="Model to be shaped like, e.g. llama-3.2-1b or qwen3-4b."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="GGUF file to write.")],
    quant: Annotated[
        str,
        typer.Option("--quant", metavar="TYPE", help="Storage of the matrices, e.g. q4_0, q4_k, q8_0, bf16."),
    ] = "q4_0",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random weights.")] = 0,
) -> None:
    """Write a GGUF file of real dimensions with random weights, to measure speed at sizes you do not have."""
    from rich.console import Console
    from rich.progress import Progress

    from paceline.models.synth import write_synthetic_model

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"writing {out.name}")
        write_synthetic_model(
            like,
            quant,
            out,
            seed=seed,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    print(f"{out} ({out.stat().st_size / 1e6:.0f} MB)")
