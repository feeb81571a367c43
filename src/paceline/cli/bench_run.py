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
    from paceline.theory.cost_table import CostTable


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
            help="Prompts, one JSON object per line (or a JSON list; gzip is fine): turns (Spec-Bench, "
            "MT-Bench), prompt, messages, HumanEval, GSM8K or ShareGPT form. Each category is a workload; "
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
    batch: Annotated[
        str,
        typer.Option("--batch", metavar="B[,B…]", help="Conversations answered at once, e.g. 1,8,32."),
    ] = "1",
    temperature: Annotated[
        str,
        typer.Option("--temperature", metavar="T[,T…]", help="0 is greedy; higher is more varied."),
    ] = "0",
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
    price_per_hour: Annotated[
        float | None,
        typer.Option(
            "--price-per-hour",
            metavar="P",
            help="What the machine costs an hour: prints the cost of a million output tokens.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write all figures to this file.")
    ] = None,
) -> None:
    """Measure drafters on real prompts, each beside plain decoding of the same prompts.

    Example: paceline bench --drafter ngram,auto --workload rewrite --batch 1,8 --json out.json

    Each prompt is answered by every drafter before the next one comes. Speeds stand beside the share of
    distinct 4-grams, for all replies and for those with at least 50 %: loops make any drafter look brilliant.
    """
    from paceline.bench.datasets import choose_prompts
    from paceline.bench.runner import BenchSettings
    from paceline.config import check_float

    drafters = options.comma_list(drafter, "--drafter")
    plan = [
        BenchSettings(drafters, max_tokens, repeat, each, seed, unseeded, first_turn, size)
        for each in options.numbers(temperature, "--temperature", float)
        for size in options.numbers(batch, "--batch", int)
    ]
    if price_per_hour is not None:
        check_float("price_per_hour", price_per_hour, 0.0, 1e6)
    prompts = choose_prompts(options.comma_lists(workload, "--workload"), dataset, limit)
    check_writable(output)
    engine = _engine_options(num_draft_tokens, threads, context, quant)
    llm = _open(model, prompts, plan, engine)
    results = [result for settings in plan for result in _run(llm, prompts, settings)]
    _report(llm, results, plan, prompts, price_per_hour, output)


def _engine_options(
    num_draft_tokens: int | None, threads: int | None, context: int | None, quant: str
) -> dict[str, Any]:
    """Return the arguments of ``LLM`` that options stand for."""
    return {
        "num_draft_tokens": num_draft_tokens,
        "threads": threads,
        "max_model_len": context,
        "quant": options.quant_named(quant),
    }


def _open(
    model: str, prompts: Sequence[BenchPrompt], plan: Sequence[BenchSettings], engine: dict[str, Any]
) -> LLM:
    """Load the model, with a cache that holds the largest batch.

    Every request names its own drafter; the model is opened with one that drafts, for its draft length. The
    prefix cache stays off: the drafter that answers second would find the prompt computed by the first.
    """
    from rich.console import Console

    from paceline.bench.room import cache_tokens_wanted
    from paceline.llm import LLM

    with Console(stderr=True).status(f"loading {model}"):
        size = max(settings.batch for settings in plan)
        if size > 1:
            engine |= {
                "kv_cache_tokens": cache_tokens_wanted(model, prompts, plan, engine["max_model_len"]),
                "max_num_requests": max(32, size),
            }
        return LLM(model, "auto", enable_prefix_caching=False, **engine)


def _run(llm: LLM, prompts: Sequence[BenchPrompt], settings: BenchSettings) -> list[RunResult]:
    """Run the bench under a progress bar."""
    from paceline.bench.llm_engine import LlmEngine, named_costs
    from paceline.bench.runner import count_replies, run_bench

    with options.counting_bar(28) as progress:
        task = progress.add_task("warm-up", total=count_replies(prompts, settings))

        def on_reply(reply: Reply | None) -> None:
            text = "warm-up"
            if reply is not None:
                text = f"{reply.prompt.category} {reply.prompt.id} · {reply.drafter}"
            progress.update(task, advance=1, description=text[:28])

        def costs() -> CostTable | None:
            known = _costs(llm)
            return None if known is None else named_costs(llm, known, settings.drafters)

        return run_bench(LlmEngine(llm), prompts, settings, on_reply, costs)


def _costs(llm: LLM) -> CostTable | None:
    """Return the model's costs on this machine; ``None`` when they are assumed: those predict nothing."""
    return None if llm.costs.profile is None else llm.costs.profile.table


def _report(
    llm: LLM,
    results: list[RunResult],
    plan: Sequence[BenchSettings],
    prompts: Sequence[BenchPrompt],
    price_per_hour: float | None,
    output: Path | None,
) -> None:
    from paceline.bench.environment import describe_environment
    from paceline.bench.report import RunFacts, as_json, prompts_digest, result_tables
    from paceline.bench.room import size_of
    from paceline.bench.tables import mean_table

    environment = describe_environment(llm.executor.num_threads, llm.executor.path)
    console = options.report_console()
    tables = result_tables(results, price_per_hour)
    if len({result.workload for result in results}) > 1:
        tables.append(mean_table(results))
    for table in tables:
        console.print(table, "")
    first = plan[0]
    console.print(
        f"{results[0].model} · {_conditions(llm, plan)} · "
        f"at most {first.max_tokens} tokens, end token honoured · median of {first.repeats} · "
        f"{environment.threads} threads, {environment.instruction_path} · "
        f"{environment.cpu} · commit {environment.commit or 'unknown'}",
        highlight=False,
        soft_wrap=True,
    )
    if output is not None:
        facts = RunFacts(
            environment,
            prompts_digest(prompts),
            size_of(llm.model_files.path),
            _costs(llm),
            price_per_hour,
        )
        data: dict[str, Any] = as_json(results, plan, facts)
        write_text(output, json.dumps(data, indent=2) + "\n")
        console.print(f"written to {output}", highlight=False, soft_wrap=True)


def _conditions(llm: LLM, plan: Sequence[BenchSettings]) -> str:
    """Return how was sampled, and what else of the prompts is not as usual."""
    warm = dict.fromkeys(settings.temperature for settings in plan)
    sampling = ", ".join(f"temperature {value:g}" if value else "greedy" for value in warm)
    parts = [sampling + (", unseeded" if plan[0].unseeded else "")]
    sizes = dict.fromkeys(settings.batch for settings in plan)
    if set(sizes) != {1}:
        parts.append(f"batch {', '.join(map(str, sizes))}")
    if plan[0].first_turn:
        parts.append("first turn only")
    if llm.model_files.chat_template_text is None:
        parts.append("plain prompts (base model)")
    return " · ".join(parts)
