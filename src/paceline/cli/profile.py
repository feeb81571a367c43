"""``paceline profile``: what a forward costs on this machine, and the costs that drafts are planned by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli import options
from paceline.cli.files import check_writable, write_text
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.bench.profile import ProfileReport
    from paceline.profiling.store import Profile

MAX_ROWS = 512


def profile(
    model: options.Model = options.DEFAULT_MODEL,
    rows: Annotated[
        str, typer.Option("--rows", metavar="LIST", help="Rows of a forward, e.g. 1-16 or 1,2,4,8.")
    ] = "1-16",
    depth: Annotated[
        int, typer.Option("--depth", metavar="N", help="Tokens that are in the cache already.")
    ] = 128,
    repeat: Annotated[
        int, typer.Option("--repeat", "-r", metavar="R", help="Forwards of each width; figures are medians.")
    ] = 40,
    threads: options.Threads = None,
    quant: options.QuantName = "none",
    output: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write all figures to this file.")
    ] = None,
    refresh: Annotated[
        bool,
        typer.Option("--refresh", help="Measure the stored costs again (under 10 s), and nothing else."),
    ] = False,
    drafter: Annotated[
        str, typer.Option("--drafter", "-d", metavar="NAME", help="With --refresh: whose costs as well.")
    ] = "auto",
) -> None:
    """Measure the time of a forward with 1 to 16 rows, and show the costs that drafts are planned by.

    Example: paceline profile --model smollm2-135m --json out/profile.json

    r(M) is the time with M rows ÷ the time with one, logits for every row. `paceline theory table
    --cost-curve FILE` reads the JSON and says which draft lengths can pay. The stored costs are measured at
    first use of a model; --refresh measures them again.
    """
    if refresh:
        _refresh(model, drafter, threads, quant, output)
        return
    from rich.console import Console
    from rich.progress import Progress

    from paceline.bench.profile import profile_model

    wanted = parse_rows(rows)
    check_writable(output)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("measuring", total=1.0)
        report = profile_model(
            model,
            rows=wanted,
            context=depth,
            repeats=repeat,
            threads=threads,
            quant=options.quant_named(quant),
            progress=lambda share: progress.update(task, completed=share),
        )
    _print(report)
    if output is not None:
        write_text(output, json.dumps(report.to_json(), indent=2) + "\n")
        print(f"written to {output}")
    costs = options.open_llm(model, drafter="none", threads=threads, quant=quant, profile="auto").costs
    if costs.profile is None:
        print("no costs are stored yet: they are measured when a drafter is first used, or with --refresh")
    else:
        print_costs(costs.profile, costs.path)


def _refresh(model: str, drafter: str, threads: int | None, quant: str, output: Path | None) -> None:
    """Measure the stored costs again and print them."""
    check_writable(output)
    llm = options.open_llm(model, drafter=drafter, threads=threads, quant=quant, profile="off")
    kept = llm.measure_costs()
    print_costs(kept, llm.costs.path)
    if output is not None:
        curve = {str(m): r for m, r in kept.table.verify}
        write_text(output, json.dumps({**kept.to_json(), "r": curve}, indent=2) + "\n")
        print(f"written to {output}")


def print_costs(kept: Profile, path: Path) -> None:
    """Print the table that drafts are planned by, and where it is kept."""
    from rich.table import Table

    console, table = options.report_console(), kept.table
    ms, far = 1e3 * table.row_seconds, 1e6 * table.row_seconds
    curve = "  ".join(f"r({m}) {cost:.2f}" for m, cost in table.verify)
    console.print(
        f"\nCosts that drafts are planned by, measured {kept.measured_at}\n{curve}\n"
        f"one row: {ms:.2f} ms; a step besides: {1e3 * table.step_seconds:.2f} ms; 1,000 tokens more in the "
        f"cache: {far * table.per_sequence_token:.2f} ms and {far * table.per_row_token:.2f} ms a row"
    )
    if kept.is_disturbed:
        console.print(
            f"the machine was busy (equal steps differ by {kept.spread:.0%}): measure again with --refresh "
            "when it is quiet",
            soft_wrap=True,
        )
    drafts = Table(title="drafting, in one-row forwards", title_justify="left")
    drafts.add_column("drafter")
    for name in ("fixed", "per level", "per node"):
        drafts.add_column(name, justify="right")
    for name, cost in table.draft_costs.items():
        drafts.add_row(name, f"{cost.fixed:.3f}", f"{cost.per_level:.3f}", f"{cost.per_node:.3f}")
    console.print(drafts)
    console.print(f"{kept.key.cpu}, {kept.key.threads} threads, {kept.key.instruction_path}: {path}")


def parse_rows(text: str) -> tuple[int, ...]:
    """Return the numbers of ``1-4,8`` in rising order. Raises ``ConfigError`` for anything else."""
    numbers: set[int] = set()
    for part in options.comma_list(text, "--rows"):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else not last)):
            raise ConfigError(f"--rows {text!r}: {part!r} is neither a number nor a range such as 1-16")
        low, high = int(first), int(last or first)
        if not 1 <= low <= high <= MAX_ROWS:
            raise ConfigError(f"--rows {text!r}: {part!r} must rise and lie within 1 to {MAX_ROWS}")
        numbers.update(range(low, high + 1))
    return tuple(sorted(numbers))


def _print(report: ProfileReport) -> None:
    console = options.report_console()
    environment = report.environment
    console.print(_forward_table(report))
    console.print(
        f"one row reads {report.weight_bytes / 1e6:.0f} MB of weights at "
        f"{report.bytes_per_second / 1e9:.1f} GB/s; this machine reads memory at "
        f"{report.read_bandwidth / 1e9:.1f} GB/s\n"
        f"prompt of 512 tokens: {report.prompt_ms:.0f} ms ({512e3 / report.prompt_ms:.0f} tokens/s)\n"
        f"{report.model} · {environment.threads} threads, {environment.instruction_path} · "
        f"{environment.cpu} · commit {environment.commit or 'unknown'}"
    )
    for rows, shares in report.operator_shares.items():
        largest = sorted(shares.items(), key=lambda item: -item[1])
        console.print(
            f"{rows} row{'' if rows == 1 else 's'}: "
            + ", ".join(f"{name} {share:.0%}" for name, share in largest)
        )


def _forward_table(report: ProfileReport) -> Table:
    from rich.table import Table

    table = Table(title=f"forward, {report.context} tokens in the cache", title_justify="left")
    for name in ("rows", "ms", "10 %–90 %", "r(M)", "ms per row"):
        table.add_column(name, justify="right")
    for rows, ms in report.ms.items():
        low, high = report.spread_ms[rows]
        table.add_row(
            str(rows), f"{ms:.2f}", f"{low:.2f}–{high:.2f}", f"{report.r[rows]:.2f}", f"{ms / rows:.2f}"
        )
    return table
