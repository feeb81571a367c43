"""``paceline models``: what can be pulled, and where it lies."""

from __future__ import annotations

from typing import Annotated

import typer


def models(
    path: Annotated[
        str | None, typer.Option("--path", metavar="NAME", help="Print only where this model lies.")
    ] = None,
) -> None:
    """List the models of the catalog and which of them are fetched."""
    from paceline.models.catalog import CATALOG, cache_dir, cached_path, resolve_model

    if path is not None:
        print(resolve_model(path))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "size", "licence", "about", "fetched")
    for entry in CATALOG.values():
        lies = cached_path(entry.name)
        table.add_row(
            entry.name, f"{entry.size / 1e6:.0f} MB", entry.licence, entry.about, "yes" if lies else "no"
        )
    console = Console()
    console.print(table)
    console.print(
        f"Cache: {cache_dir()}. A path to a GGUF file or a model folder works wherever a name does."
    )
