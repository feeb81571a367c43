"""The program ``paceline``: commands are put together here, and a user's mistake becomes one clear line."""

from __future__ import annotations

import errno
import io
import sys
import warnings
from functools import partial
from importlib import metadata
from typing import Annotated

import typer

from paceline.cli.advise import advise
from paceline.cli.bench import app as bench
from paceline.cli.chat import chat
from paceline.cli.check import check
from paceline.cli.config_file import accept_config
from paceline.cli.demo import demo
from paceline.cli.explain import explain
from paceline.cli.export import export
from paceline.cli.generate import generate
from paceline.cli.models import models
from paceline.cli.profile import profile
from paceline.cli.pull import pull
from paceline.cli.serve import serve
from paceline.cli.synth import synth
from paceline.cli.theory import app as theory
from paceline.cli.train import app as train
from paceline.cli.wording import in_options
from paceline.errors import PacelineError

USER_ERROR = 2
INTERRUPTED = 130
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Of the disk, of the user's quota, of what a file may hold (``ulimit -f``)."""

app = typer.Typer(
    name="paceline",
    help="Exact, self-tuning speculative decoding for large language models, fast on ordinary CPUs.",
    epilog="Start with: paceline pull smollm2-135m && paceline demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (generate, chat, explain, demo, advise, export, check, profile, pull, models, serve, synth):
    app.command()(command)
app.add_typer(bench, name="bench")
app.add_typer(theory, name="theory")
app.add_typer(train, name="train")
accept_config(app, but=("theory", "train"))
commands = partial(typer.main.get_command, app)
"""Returns the whole program as click sees it."""


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"paceline {metadata.version('paceline')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the program itself; ``--version`` ends it in its callback."""


with_source = warnings.formatwarning


def format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return a warning of ours as one line: users of the program have no use for the place in its source."""
    if category.__module__.startswith("paceline."):
        return f"paceline: warning: {message}\n"
    return with_source(message, category, filename, lineno, line)


def main() -> None:
    """Run the program. Errors of the user's end with status 2 and one line on stderr, Ctrl-C with 130."""
    warnings.formatwarning = format_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a character still shows the others
            stream.reconfigure(errors="replace")
    try:
        app()
    except PacelineError as error:
        said = in_options(str(error), commands())
        print(f"paceline: {said}", file=sys.stderr)
        sys.exit(USER_ERROR)
    except OSError as error:
        if error.errno not in FULL:
            raise
        print(f"paceline: cannot write: {error.strerror}; free some space", file=sys.stderr)
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
