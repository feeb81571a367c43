"""``paceline train export``: a trained head as one quantised file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from paceline.cli import options
from paceline.errors import ConfigError


def export(
    head: Annotated[
        str,
        typer.Option(
            "--head", metavar="DIR", help="Folder of a head, such as RUN/export/head, or hf:org/repo."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File to write, *.gguf.")],
    quant: Annotated[
        str,
        typer.Option("--quant", metavar="TYPE", help="Storage of matrices: q8_0, q4_1, q4_0, bf16 or f16."),
    ] = "q8_0",
    layers: Annotated[
        str | None,
        typer.Option("--layers", metavar="A,B,C", help="Layers the head reads, where it does not say."),
    ] = None,
    card: Annotated[
        Path | None, typer.Option("--card", metavar="FILE", help="Write the model card as well.")
    ] = None,
) -> None:
    """Write a head as one quantised GGUF file, with its provenance. Needs no PyTorch.

    Example: paceline train export --head runs/smol/export/head --quant q8_0 --out head.gguf
    """
    from paceline.models.eagle3_export import read_provenance
    from paceline.models.eagle3_export_gguf import convert_head

    provenance = read_provenance(Path(head))
    if card is not None and "stages" not in provenance:
        raise ConfigError(f"--card {card}: {head} does not say how it was trained; leave --card out")
    convert_head(head, out, quant=quant, state_layers=options.numbers(layers, "--layers", int))
    if card is not None:
        _write_card(card, out, quant, provenance)
    print(f"{out} ({out.stat().st_size / 1e6:.1f} MB)")


def _write_card(card: Path, head: Path, quant: str, provenance: dict[str, Any]) -> None:
    from paceline.cli.files import write_text
    from paceline.models.eagle3_gguf import open_gguf_head
    from paceline.train.model_card import model_card

    files = open_gguf_head(head)
    files.source.close()
    form = f"GGUF, matrices {quant}, converted from the head whose figures stand below"
    write_text(card, model_card(files.spec, provenance, form=form))
