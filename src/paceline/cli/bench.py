"""``paceline bench`` and its subcommands: which one a command line means. Each has a module of its own.

A new subcommand is one line at the end of this module: ``app.command("name")(function)``.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from paceline.cli.bench_compare import compare
from paceline.cli.bench_load import load
from paceline.cli.bench_report import report
from paceline.cli.bench_run import run

RUN = "run"
LOAD = "load"
ENDPOINT = "--endpoint"
_HELP = ("-h", "--help")


class BenchGroup(TyperGroup):
    """Lets the name of the command be left out: ``--endpoint`` means ``load``, anything else ``run``.

    ``paceline bench --drafter ngram`` was there before there were subcommands, and stays.
    """

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse ``args`` as those of the command they mean; that one is then invoked instead of the group."""
        # Options come first wherever no command is named, so any other word is meant as one.
        if args and (args[0] in _HELP or not args[0].startswith("-")):
            return super().make_context(info_name, args, parent=parent, **extra)
        is_load = any(arg == ENDPOINT or arg.startswith(f"{ENDPOINT}=") for arg in args)
        command = self.commands[LOAD if is_load and LOAD in self.commands else RUN]
        return command.make_context(info_name, args, parent=parent, **extra)


app = typer.Typer(
    name="bench",
    cls=BenchGroup,
    help="Measure drafters against plain decoding, in turns; compare two runs.\n\n"
    "Without a subcommand: `run`, whose options `paceline bench run --help` lists.",
    add_completion=False,
)
app.command(RUN)(run)
app.command("compare")(compare)
app.command(LOAD)(load)
app.command("report")(report)
