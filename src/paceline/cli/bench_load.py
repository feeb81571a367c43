"""``paceline bench --endpoint URL``: load on a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli import options
from paceline.cli.files import check_writable, write_text

if TYPE_CHECKING:
    from paceline.bench.datasets import BenchPrompt
    from paceline.bench.load.driver import LoadRun, PointRun
    from paceline.bench.load.endpoint import Endpoint
    from paceline.bench.load.settings import LoadSettings


def load(
    endpoint: Annotated[
        str,
        typer.Option(
            "--endpoint",
            metavar="URL",
            help="An OpenAI-compatible server: http://host:port, …/v1, or the full address of an interface.",
        ),
    ],
    concurrency: Annotated[
        str | None,
        typer.Option(
            "--concurrency",
            "-c",
            metavar="N[,N…]",
            help="Closed loop: requests kept in flight, one point each.",
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="R[,R…]", help="Open loop: requests per second, one point each."),
    ] = None,
    arrivals: Annotated[
        str, typer.Option("--arrivals", metavar="LAW", help="poisson or fixed, with --rate.")
    ] = "poisson",
    requests: Annotated[
        int | None, typer.Option("--requests", metavar="N", help="Requests of a point (default: 100).")
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option("--duration", metavar="SECONDS", help="Seconds of a point in which requests start."),
    ] = None,
    warm_up: Annotated[
        int | None,
        typer.Option(
            "--warm-up",
            metavar="N",
            help="Requests before each point that are not counted (default: as many as are in flight).",
        ),
    ] = None,
    goodput: Annotated[
        str | None,
        typer.Option(
            "--goodput", metavar="LIMITS", help="Count replies within limits: ttft:200ms,tpot:50ms,e2e:2s."
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option("--workload", "-w", metavar="NAME", help="As in `paceline bench run`; first turns."),
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option("--dataset", metavar="FILE", help="As in `paceline bench run`; first turns."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="Use the first N prompts of each workload.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="The model's name at the server (default: the first it lists).",
        ),
    ] = None,
    api: Annotated[
        str, typer.Option("--api", metavar="NAME", help="chat or completions: the interface to use.")
    ] = "chat",
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            metavar="KEY",
            envvar=["PACELINE_API_KEY", "OPENAI_API_KEY"],
            show_envvar=True,
            help="Sent as a bearer token; never written to files.",
        ),
    ] = None,
    max_tokens: options.MaxTokens = 128,
    temperature: options.Temperature = 0.0,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", help="Of Poisson arrivals; of the first prompt at temperature > 0."
        ),
    ] = 0,
    extra_body: Annotated[
        str | None,
        typer.Option(
            "--extra-body", metavar="JSON", help='Put into every request, e.g. {"ignore_eos": true}.'
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="Longest time for a whole reply.")
    ] = 120.0,
    price_per_hour: Annotated[
        float | None,
        typer.Option(
            "--price-per-hour", metavar="PRICE", help="Of the server: gives cost per million tokens."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write all figures to this file.")
    ] = None,
) -> None:
    """Put load on an OpenAI-compatible server: ours, vLLM, llama-server and others.

    Example: paceline bench --endpoint http://127.0.0.1:8000 --concurrency 1,8,32 --goodput ttft:500ms

    A closed loop keeps N requests in flight. An open loop sends them at a rate whether the server keeps up or
    not, as users do. Replies are streamed; their first pieces and the gaps between pieces are timed.
    """
    from paceline.bench.datasets import choose_prompts, taking_turns
    from paceline.bench.load.endpoint import parse_endpoint
    from paceline.bench.load.goodput import parse_objective
    from paceline.bench.load.settings import LoadSettings, parse_extra

    place = parse_endpoint(endpoint, api)
    settings = LoadSettings(
        concurrency=options.numbers(concurrency, "--concurrency", int) or (),
        rates=options.numbers(rate, "--rate", float) or (),
        arrivals=arrivals,  # type: ignore[arg-type]  # checked by the settings
        requests=requests,
        duration=duration,
        warm_up=warm_up,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        timeout=timeout,
        objective=None if goodput is None else parse_objective(goodput),
        extra=parse_extra(extra_body),
        price_per_hour=price_per_hour,
    )
    prompts = taking_turns(choose_prompts(options.comma_lists(workload, "--workload"), dataset, limit))
    check_writable(output)
    _report(_run(place, prompts, settings, model, api_key), settings, output)


def _run(
    place: Endpoint,
    prompts: Sequence[BenchPrompt],
    settings: LoadSettings,
    model: str | None,
    key: str | None,
) -> LoadRun:
    """Run under a progress line (on stderr, so that tables can be redirected)."""
    from rich.console import Console

    from paceline.bench.load.driver import run_load

    with Console(stderr=True).status(f"asking {place.base} what it serves") as status:

        def progress(point: PointRun, warm_up: bool) -> None:
            load = f"{point.rate:g} req/s" if point.rate is not None else f"{point.concurrency} in flight"
            count = len(point.replies) + len(point.failed)
            failed = f", {len(point.failed)} failed" if point.failed else ""
            status.update(f"{load}: " + ("warm-up" if warm_up else f"{count} requests{failed}"))

        return run_load(place, prompts, settings, model=model, api_key=key, progress=progress)


def _report(run: LoadRun, settings: LoadSettings, output: Path | None) -> None:
    from paceline.bench.environment import describe_environment
    from paceline.bench.load import report

    points = report.summarize_run(run, settings)
    console = options.report_console()
    tables = (report.throughput_table(points), report.latency_table(points), report.extra_table(points))
    for table in filter(None, tables):
        console.print(table, "")
    server = run.server
    console.print(
        f"{server.model} at {server.endpoint.url} ({server.dialect}) · "
        + (f"{settings.arrivals} arrivals · " if settings.rates else "")
        + ("greedy" if not settings.temperature else f"temperature {settings.temperature:g}")
        + f" · at most {settings.max_tokens} tokens · tokens counted by {points[0].tokens_counted_by} · "
        "warm-up left out",
        highlight=False,
    )
    for note in report.notes_of(run, points):
        console.print(f"note: {note}", highlight=False)
    if output is not None:
        # The client runs no executor: no threads and no instruction path of one.
        plain = report.as_json(run, settings, describe_environment(0, ""))
        write_text(output, json.dumps(plain, indent=2) + "\n")
        console.print(f"written to {output}", highlight=False)
