"""``paceline pull``: fetch a model into the cache."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def pull(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name from `paceline models`, or hf:org/repo[:file].")
    ],
    accept_terms: Annotated[
        bool, typer.Option("--accept-terms", help="Accept the model's terms of use (printed without it).")
    ] = False,
) -> None:
    """Fetch a model; a broken download goes on where it stopped. Prints where the model lies."""
    if name.startswith("hf:"):
        from paceline.models.hub import pull_hub_model

        print(pull_hub_model(name))  # with bars of its own
        return
    print(_pull_with_bar(name, accept_terms))


def _pull_with_bar(name: str, accept_terms: bool) -> Path:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from paceline.models.catalog import catalog_entry
    from paceline.models.pull import pull_catalog_model

    entry = catalog_entry(name)
    console = Console(stderr=True)
    if entry.terms and accept_terms:
        console.print(entry.terms, style="dim", highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks = {name: bar.add_task(name, total=None)}

        has_begun = False

        def show(label: str, done: int, total: int) -> None:
            nonlocal has_begun
            if not has_begun and not console.is_terminal:
                _say(f"fetching {name}, {entry.size / 1e6:.0f} MB; this may take minutes")
            has_begun = True
            if label not in tasks:
                tasks[label] = bar.add_task(label)
            bar.update(tasks[label], completed=done, total=total or None)

        path = pull_catalog_model(name, accept_terms=accept_terms, progress=show)
    if has_begun and not console.is_terminal:
        _say(f"fetched {name}")
    return path


def _say(text: str) -> None:
    """Write a line where nobody sees the bar."""
    print(f"paceline: {text}", file=sys.stderr, flush=True)
