"""``paceline bench compare``: what changed between two runs, beyond noise."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli import options
from paceline.errors import ConfigError, nearest_name

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.bench.compare import Change
    from paceline.bench.runfile import RunFile

REGRESSION = 1


def compare(
    before: Annotated[Path, typer.Argument(metavar="A.json", help="The run to compare with.")],
    after: Annotated[Path, typer.Argument(metavar="B.json", help="The run to judge.")],
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="FIGURE[,FIGURE…]",
            help="Judge these alone: speedup, tokens_per_s, tokens_per_step, acceptance_rate, ttft_s, "
            "identical_share. On a machine whose speed drifts, speedup is the one to trust.",
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", metavar="SHARE", help="Ignore changes up to this (0.02: 2 %).")
    ] = 0.0,
    everything: Annotated[bool, typer.Option("--all", help="List unchanged figures too.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Compare runs of other models, settings or machines all the same.")
    ] = False,
) -> None:
    """Print what changed from A to B beyond noise. Ends with status 1 when anything got worse.

    Example: paceline bench compare before.json after.json --only speedup,identical_share

    Both files come from `paceline bench --json`. The chance that two runs of the same program differ in
    anything at all by this test is 5 %.
    """
    from paceline.bench.compare import compare_runs
    from paceline.bench.runfile import RunFile
    from paceline.config import check_float

    check_float("tolerance", tolerance, 0.0, 1.0)
    figures = _figures(only)
    theirs, ours = RunFile.read(before), RunFile.read(after)
    _check_comparable(theirs, ours, force)
    changes = compare_runs(theirs, ours, figures, tolerance)
    _print(theirs, ours, changes, everything)
    if any(change.verdict == "worse" for change in changes):
        raise typer.Exit(REGRESSION)


def _figures(only: str | None) -> tuple[str, ...]:
    from paceline.bench.compare import FIGURE_NAMES

    if only is None:
        return FIGURE_NAMES
    chosen = options.comma_list(only, "--only")
    for name in chosen:
        if name not in FIGURE_NAMES:
            known = ", ".join(FIGURE_NAMES)
            raise ConfigError(
                f"--only {name!r} is no figure{nearest_name(name, FIGURE_NAMES)}; known: {known}"
            )
    return chosen


def _check_comparable(before: RunFile, after: RunFile, force: bool) -> None:
    from paceline.bench.runfile import differences, unequal_units

    found = list(differences(before, after))
    if not before.runs.keys() & after.runs.keys() or (unequal_units(before, after) and not found):
        found.append("prompts of the cases in both")
    if not found:
        return
    listed = "; ".join(found)
    hopeless = unequal_units(before, after) or not before.runs.keys() & after.runs.keys()
    if not force or hopeless:
        way_out = "nothing in them can be paired" if hopeless else "--force compares them all the same"
        raise ConfigError(f"{before.path} and {after.path} are not comparable ({listed}); {way_out}")
    print(f"paceline: compared although they differ: {listed}", file=sys.stderr)


def _print(before: RunFile, after: RunFile, changes: list[Change], everything: bool) -> None:
    console = options.report_console()
    shown = [change for change in changes if everything or change.verdict not in ("same", "unclear")]
    if shown:
        console.print(_table("all figures" if everything else "changes beyond noise", shown))
    counts = Counter(change.verdict for change in changes)
    words = f"{counts['better']} better, {counts['worse']} worse, {counts['same']} within noise"
    if counts["unclear"]:
        words += f", {counts['unclear']} with one prompt and repeat, which shows no noise"
    console.print(f"{len(changes)} figures: {words}", highlight=False)
    for label, here, there in (("before", before, after), ("after", after, before)):
        for workload, drafter, batch, temperature in sorted(here.runs.keys() - there.runs.keys()):
            case = f"{workload} · {drafter} · batch {batch} · {temperature:g}"
            console.print(f"only {label}: {case}", highlight=False)


def _table(title: str, changes: list[Change]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in ("workload", "drafter", "batch", "temp.", "figure"):
        table.add_column(name)
    for name in ("before", "after", "change", "interval"):
        table.add_column(name, justify="right")
    table.add_column("")
    for change in changes:
        table.add_row(*map(str, change.case[:3]), f"{change.case[3]:g}", *_cells(change))
    return table


def _cells(change: Change) -> list[str]:
    def percent(ratio: float) -> str:
        return f"{100 * (ratio - 1):+.1f} %"

    return [
        change.figure,
        f"{change.before:.4g}",
        f"{change.after:.4g}",
        percent(change.after / change.before) if change.before else "–",
        f"{percent(change.low)} … {percent(change.high)}",
        change.verdict,
    ]
