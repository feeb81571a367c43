"""``paceline bench``: drafters against plain decoding, in turns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli import options
from paceline.cli.files import check_writable, write_text

if TYPE_CHECKING:
    from paceline.bench.datasets import BenchPrompt
    from paceline.bench.records import Reply, RunResult
    from paceline.bench.runner import BenchSettings
    from paceline.llm import LLM


def bench(
    model: options.Model = options.DEFAULT_MODEL,
    drafter: Annotated[
        str,
        typer.Option("--drafter", "-d", metavar="NAME[,NAME…]", help="Drafters to set beside `none`."),
    ] = "auto",
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            "-w",
            metavar="NAME",
            help="chat, code, math, summarize, extract or rewrite; may be given several times, or as a,b,c. "
            "All of them unless --dataset is given.",
        ),
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(
            "--dataset", metavar="FILE", help="JSONL rows with turns (Spec-Bench form), prompt or messages."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="Use the first N prompts of each workload.")
    ] = None,
    max_tokens: options.MaxTokens = 128,
    repeat: Annotated[
        int, typer.Option("--repeat", "-r", metavar="R", help="Rounds; figures are their medians.")
    ] = 3,
    temperature: options.Temperature = 0.0,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Seed of the first prompt, at temperature > 0.")
    ] = 0,
    num_draft_tokens: options.NumDraftTokens = None,
    threads: options.Threads = None,
    context: options.Context = None,
    quant: options.QuantName = "none",
    output: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write all figures to this file.")
    ] = None,
) -> None:
    """Measure drafters on real prompts, each beside plain decoding of the same prompts.

    Example: paceline bench --drafter ngram,auto --workload rewrite --repeat 3 --json out.json

    Each prompt is answered by every drafter before the next one comes. Speeds stand beside the share of
    distinct 4-grams, for all replies and for those with at least 50 %: loops make any drafter look brilliant.
    """
    from paceline.bench.runner import BenchSettings

    drafters = options.comma_list(drafter, "--drafter")
    settings = BenchSettings(drafters, max_tokens, repeat, temperature, seed)
    prompts = _prompts(workload or [], dataset, limit)
    check_writable(output)
    # Every request names its own drafter; the model is opened with one that drafts, for its draft length.
    llm = options.open_llm(
        model,
        drafter="auto",
        num_draft_tokens=num_draft_tokens,
        threads=threads,
        context=context,
        quant=quant,
    )
    results = _run(llm, prompts, settings)
    _report(llm, results, settings, output)


def _prompts(workloads: Sequence[str], dataset: Path | None, limit: int | None) -> list[BenchPrompt]:
    from paceline.bench.datasets import WORKLOADS, load_dataset, load_workload
    from paceline.config import check_int

    if limit is not None:
        check_int("limit", limit, 1)
    names = [part for entry in workloads for part in options.comma_list(entry, "--workload")]
    if not names and dataset is None:
        names = list(WORKLOADS)
    prompts = [prompt for name in dict.fromkeys(names) for prompt in load_workload(name)[:limit]]
    if dataset is not None:
        rows = load_dataset(dataset)
        for category in dict.fromkeys(row.workload for row in rows):
            prompts += [row for row in rows if row.workload == category][:limit]
    return prompts


def _run(llm: LLM, prompts: Sequence[BenchPrompt], settings: BenchSettings) -> list[RunResult]:
    """Run the bench under a progress bar (on stderr, so that tables can be redirected)."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from paceline.bench.llm_engine import LlmEngine
    from paceline.bench.runner import count_replies, run_bench

    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("warm-up", total=count_replies(prompts, settings))

        def on_reply(reply: Reply | None) -> None:
            text = "warm-up" if reply is None else f"{reply.workload} {reply.prompt_id} · {reply.drafter}"
            progress.update(task, advance=1, description=text[:28])

        return run_bench(LlmEngine(llm), prompts, settings, on_reply)


def _report(llm: LLM, results: list[RunResult], settings: BenchSettings, output: Path | None) -> None:
    from paceline.bench.environment import describe_environment
    from paceline.bench.report import as_json, result_tables

    environment = describe_environment(llm.executor.num_threads, llm.executor.path)
    console = options.report_console()
    for table in result_tables(results):
        console.print(table, "")
    sampling = f"temperature {settings.temperature:g}" if settings.temperature else "greedy"
    console.print(
        f"{results[0].model} · {sampling} · at most {settings.max_tokens} tokens, end token honoured · "
        f"median of {settings.repeats} · {environment.threads} threads, {environment.instruction_path} · "
        f"{environment.cpu} · commit {environment.commit or 'unknown'}",
        highlight=False,
    )
    if output is not None:
        data: dict[str, Any] = as_json(results, settings, environment)
        write_text(output, json.dumps(data, indent=2) + "\n")
        console.print(f"written to {output}", highlight=False)
