"""``paceline bench`` without a subcommand: drafters against plain decoding, in turns."""

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


def run(
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
            "All of them unless --dataset is given. A base model (without chat template) continues the texts "
            "as plain prompts, here and with --dataset.",
        ),
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(
            "--dataset",
            metavar="FILE",
            help="JSONL rows with turns (Spec-Bench form), prompt or messages. Each category is a workload; "
            "those of MT-bench, in rows with turns, are one: mt-bench.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            help="Use the first N prompts of each workload, spread over its categories.",
        ),
    ] = None,
    first_turn: Annotated[
        bool, typer.Option("--first-turn", help="Ask only the first turn of each conversation.")
    ] = False,
    max_tokens: options.MaxTokens = 128,
    repeat: Annotated[
        int, typer.Option("--repeat", "-r", metavar="R", help="Rounds; figures are their medians.")
    ] = 3,
    temperature: options.Temperature = 0.0,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Seed of the first prompt, at temperature > 0.")
    ] = 0,
    unseeded: Annotated[
        bool,
        typer.Option(
            "--unseeded",
            help="At temperature > 0, draw every reply with fresh noise, as requests without a seed are "
            "served. Replies then differ between drafters, and speedup is the ratio of tokens/s.",
        ),
    ] = False,
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
    settings = BenchSettings(drafters, max_tokens, repeat, temperature, seed, unseeded, first_turn)
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
    from paceline.bench.datasets import WORKLOADS, first_prompts, load_dataset, load_workload
    from paceline.config import check_int

    if limit is not None:
        check_int("limit", limit, 1)
    names = [part for entry in workloads for part in options.comma_list(entry, "--workload")]
    if not names and dataset is None:
        names = list(WORKLOADS)
    prompts = [prompt for name in dict.fromkeys(names) for prompt in load_workload(name)]
    if dataset is not None:
        prompts += load_dataset(dataset)
    return first_prompts(prompts, limit)


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
            text = "warm-up"
            if reply is not None:
                text = f"{reply.prompt.category} {reply.prompt.id} · {reply.drafter}"
            progress.update(task, advance=1, description=text[:28])

        return run_bench(LlmEngine(llm), prompts, settings, on_reply)


def _report(llm: LLM, results: list[RunResult], settings: BenchSettings, output: Path | None) -> None:
    from paceline.bench.environment import describe_environment
    from paceline.bench.report import as_json, mean_table, result_tables

    environment = describe_environment(llm.executor.num_threads, llm.executor.path)
    console = options.report_console()
    tables = result_tables(results)
    if len(tables) > 1:
        tables.append(mean_table(results))
    for table in tables:
        console.print(table, "")
    console.print(
        f"{results[0].model} · {_conditions(llm, settings)} · "
        f"at most {settings.max_tokens} tokens, end token honoured · median of {settings.repeats} · "
        f"{environment.threads} threads, {environment.instruction_path} · "
        f"{environment.cpu} · commit {environment.commit or 'unknown'}",
        highlight=False,
    )
    if output is not None:
        data: dict[str, Any] = as_json(results, settings, environment)
        write_text(output, json.dumps(data, indent=2) + "\n")
        console.print(f"written to {output}", highlight=False)


def _conditions(llm: LLM, settings: BenchSettings) -> str:
    """Return how was sampled, and what else of the prompts is not as usual."""
    sampling = f"temperature {settings.temperature:g}" if settings.temperature else "greedy"
    parts = [sampling + (", unseeded" if settings.unseeded else "")]
    if settings.first_turn:
        parts.append("first turn only")
    if llm.model_files.chat_template_text is None:
        parts.append("plain prompts (base model)")
    return " · ".join(parts)
