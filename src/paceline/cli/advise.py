"""``paceline advise``: which drafter to use with a model on this machine, measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli import options
from paceline.cli.files import check_writable, write_text
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.advise.advice import Advice, Finding
    from paceline.advise.candidates import Candidate
    from paceline.advise.measure import MeasureSettings
    from paceline.bench.datasets import BenchPrompt
    from paceline.llm import LLM


def advise(
    model: options.Model = options.DEFAULT_MODEL,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            help="Prompts like those you will send, in the forms of `paceline bench --dataset`; the built-in "
            "workloads without it.",
        ),
    ] = None,
    drafter_dir: Annotated[
        Path | None,
        typer.Option("--drafter-dir", metavar="DIR", help="Folder with heads and models to try as drafters."),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", help="Time to measure, loading aside.")
    ] = 30.0,
    max_tokens: options.MaxTokens = 64,
    temperature: options.Temperature = 0.0,
    threads: options.Threads = None,
    context: options.Context = None,
    quant: options.QuantName = "none",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where the settings are written.")
    ] = Path("paceline.toml"),
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write everything found to this file.")
    ] = None,
) -> None:
    """Find the drafter that pays for a model on this machine, and write it as settings for --config.

    Example: paceline advise --model smollm2-135m && paceline chat --config paceline.toml

    Every possible drafter is listed with whether it fits; those that do are measured in turns beside plain
    decoding. When none is faster beyond noise, plain decoding is what is written.
    """
    from paceline.advise.advice import as_toml
    from paceline.advise.measure import MeasureSettings
    from paceline.bench.datasets import choose_prompts
    from paceline.config import check_float, check_int

    check_float("seconds", seconds, 1.0, 86400.0)
    check_int("max_tokens", max_tokens, 2)
    settings = MeasureSettings(seconds, max_tokens, temperature)
    check_output(output)
    check_writable(output)
    check_writable(as_json)
    texts = choose_prompts(dataset=prompts)
    llm = options.open_llm(model, drafter="none", threads=threads, context=context, quant=quant)
    advice = _advise(llm, model, texts, drafter_dir, settings)
    _report(advice)
    given = {"threads": threads, "context": context, "quant": quant if quant != "none" else None}
    write_text(output, as_toml(advice, {name: value for name, value in given.items() if value is not None}))
    print(f"written to {output}: paceline chat --config {output}")
    if as_json is not None:
        write_text(as_json, json.dumps(advice.to_json(), indent=2) + "\n")


def check_output(path: Path) -> None:
    """Raise ``ConfigError`` rather than overwrite settings that somebody wrote by hand."""
    from paceline.advise.advice import MARK

    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else MARK
    except OSError as error:
        raise ConfigError(f"--output {path} cannot be read: {error.strerror}") from error
    if not text.startswith(MARK):
        raise ConfigError(f"--output {path} exists and was not written by advise: name another file")


def _advise(
    llm: LLM, model: str, prompts: Sequence[BenchPrompt], drafter_dir: Path | None, settings: MeasureSettings
) -> Advice:
    """Look and measure under a progress bar (on stderr, so that the tables can be redirected)."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from paceline.advise.candidates import find_candidates
    from paceline.advise.run import advise as run
    from paceline.advise.run import first_turns, open_all
    from paceline.bench.environment import describe_environment
    from paceline.bench.llm_engine import named_costs

    ids = first_turns(llm, prompts)
    stderr = Console(stderr=True)
    with stderr.status("looking for drafters"):
        candidates = open_all(llm, find_candidates(llm, drafter_dir))
    _print_candidates(candidates)
    measured = [candidate.drafter for candidate in candidates if candidate.is_measured]
    # Measured when the drafters were built, or kept from before.
    table = named_costs(llm, llm.costs.table(), measured)
    environment = describe_environment(llm.executor.num_threads, llm.executor.path)
    columns = (TextColumn("{task.description:<28}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        task = bar.add_task("measuring", total=1.0)
        return run(
            llm,
            candidates,
            ids,
            settings,
            table,
            model=_absolute(model),
            machine=f"{environment.cpu}, {environment.threads} threads, {environment.instruction_path}",
            progress=lambda share, what: bar.update(task, completed=share, description=what[:28]),
        )


def _absolute(model: str) -> str:
    return str(Path(model).absolute()) if Path(model).exists() else model


# ---- report ----


def _print_candidates(candidates: Sequence[Candidate]) -> None:
    from rich.table import Table

    table = Table(title="possible drafters", title_justify="left")
    for name in ("drafter", "fits", "why, or what it is"):
        table.add_column(name, overflow="fold")
    for candidate in candidates:
        fits = "yes" if candidate.is_measured else "yes, not measured" if candidate.fits else "no"
        table.add_row(candidate.drafter, fits, candidate.about)
    options.report_console().print(table)


def _report(advice: Advice) -> None:
    console = options.report_console()
    console.print(findings_table(advice), "")
    console.print(f"{advice.machine} · plain: {advice.plain_tokens_per_second:.1f} tokens/s")
    console.print(f"Recommended: {advice.chosen}. {advice.reason}.", markup=False)


def findings_table(advice: Advice) -> Table:
    """Return what was measured, one row for each drafter."""
    from rich.table import Table

    table = Table(title="measured against plain decoding, behind the first token", title_justify="left")
    names = ("drafter", "turns", "tokens/s", "speedup", "99 %", "predicted", "tokens/step")
    for name in (*names, "acceptance", "break-even"):
        table.add_column(name, justify="left" if name == "drafter" else "right")
    for finding in advice.findings:
        table.add_row(*_row(finding))
    return table


def _row(finding: Finding) -> tuple[str, ...]:
    prediction, interval = finding.prediction, finding.interval
    return (
        str(finding.entrant),
        str(finding.num_turns),
        f"{finding.tokens_per_second:.1f}",
        f"{finding.speedup:.2f}x",
        f"{interval[0]:.2f}–{interval[1]:.2f}" if interval else "–",
        f"{prediction.speedup:.2f}x" if prediction else "–",
        f"{finding.tokens_per_step:.2f}",
        f"{prediction.acceptance:.0%}" if prediction else "–",
        (f"{prediction.break_even:.0%}" if prediction.break_even is not None else "never")
        if prediction
        else "–",
    )
