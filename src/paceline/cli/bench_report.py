"""``paceline bench report``: result files as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.files import check_writable, write_text


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN.json...", help="Files of paceline bench and paceline profile, in any mix."
        ),
    ],
    html: Annotated[Path, typer.Option("--html", metavar="OUT", help="The page to write.")],
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="Its headline.")] = (
        "Paceline bench report"
    ),
) -> None:
    """Write one self-contained page with charts and tables of every number.

    Example: paceline bench report out/bench.json out/load.json out/profile.json --html out/report.html

    The page asks for nothing from anywhere and has no scripts. What the files do not hold, it says.
    """
    from paceline.bench.html.page import render_page

    check_writable(html)
    write_text(html, render_page(runs, title))
    typer.echo(f"written to {html}")
