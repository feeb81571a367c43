"""``paceline check``: proof on the user's own model, or between two servers, that nothing changes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli import options
from paceline.cli.files import check_writable, write_text
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.bench.datasets import BenchPrompt
    from paceline.check.endpoints import EndpointSettings
    from paceline.check.local import CheckResult, CheckSettings
    from paceline.check.progress import Progress
    from paceline.llm import LLM

FAILED = 1
_BUILT_IN_LIMIT = 2
"""Prompts of each built-in workload when no file is given: twelve in all."""


def check(
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help=f"The model to check (default: {options.DEFAULT_MODEL}); with --endpoint its name there.",
        ),
    ] = None,
    drafter: Annotated[
        str | None,
        typer.Option("--drafter", "-d", metavar="NAME[,NAME…]", help="Drafters to check (default: auto)."),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            help="JSONL rows, in the forms of `paceline bench --dataset`; a few built-in prompts otherwise.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="Use the first N prompts of each workload.")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="A fifth of the draws, replies half as long: a law must be off twice as far to be caught.",
        ),
    ] = False,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", "-n", metavar="N", help="Most tokens of a reply (default: 64)."),
    ] = None,
    draws: Annotated[
        int | None, typer.Option("--draws", metavar="N", help="Draws of each test of a law (default: 20000).")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Of all draws (default: 0).")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint", metavar="URL", help="Check a server that speaks OpenAI's protocol instead."
        ),
    ] = None,
    endpoint_baseline: Annotated[
        str | None,
        typer.Option(
            "--endpoint-baseline",
            metavar="URL",
            help="The same model served without speculation; without it --endpoint is asked twice.",
        ),
    ] = None,
    api: Annotated[
        str | None,
        typer.Option("--api", metavar="NAME", help="With --endpoint: chat (default) or completions."),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key", metavar="KEY", help="With --endpoint; else PACELINE_API_KEY, if it is set."
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", help="With --endpoint: longest for a reply (default: 120)."
        ),
    ] = None,
    num_draft_tokens: options.NumDraftTokens = None,
    threads: options.Threads = None,
    context: options.Context = None,
    quant: options.QuantName = "none",
    output: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write everything found to this file.")
    ] = None,
) -> None:
    """Check that speculation changes nothing: replies, seeds, laws and cache, or two servers.

    Example: paceline check --model smollm2-135m --drafter auto,suffix,eagle3
    Example: paceline check --endpoint http://gpu:8000 --endpoint-baseline http://gpu:8001 --prompts my.jsonl

    Ends with status 0 when everything holds, 1 when something does not, 2 when it cannot be checked.
    """
    check_writable(output)
    if endpoint is None:
        _refuse(
            {
                "--endpoint-baseline": endpoint_baseline,
                "--api": api,
                "--api-key": api_key,
                "--timeout": timeout,
            }
        )
        settings = _settings(quick, max_tokens, draws, seed)
        llm_options = {
            "num_draft_tokens": num_draft_tokens,
            "threads": threads,
            "context": context,
            "quant": quant,
        }
        passed = _check_model(model, drafter, _prompts(prompts, limit), settings, llm_options, output)
    else:
        local = {"--drafter": drafter, "--quick": quick or None, "--draws": draws, "--seed": seed}
        local |= {"--num-draft-tokens": num_draft_tokens, "--threads": threads, "--context": context}
        _refuse(
            local | {"--quant": None if quant == "none" else quant},
            "with --endpoint, whose server decides it",
        )
        place = _endpoint_settings(endpoint, endpoint_baseline, model, api, api_key, max_tokens, timeout)
        passed = _check_servers(place, _prompts(prompts, limit), output)
    if not passed:
        raise typer.Exit(FAILED)


def _refuse(given: Mapping[str, object], why: str = "without --endpoint") -> None:
    for name, value in given.items():
        if value is not None:
            raise ConfigError(f"{name} does nothing {why}: leave it out")


def _prompts(path: Path | None, limit: int | None) -> list[BenchPrompt]:
    from paceline.bench.datasets import choose_prompts

    return choose_prompts((), path, _BUILT_IN_LIMIT if path is None and limit is None else limit)


def _settings(quick: bool, max_tokens: int | None, draws: int | None, seed: int | None) -> CheckSettings:
    from dataclasses import replace

    from paceline.check.local import CheckSettings

    base = CheckSettings.quick() if quick else CheckSettings()
    given = {"max_tokens": max_tokens, "num_draws": draws, "seed": seed}
    return replace(base, **{name: value for name, value in given.items() if value is not None})


def _check_model(
    model: str | None,
    drafter: str | None,
    prompts: Sequence[BenchPrompt],
    settings: CheckSettings,
    llm_options: dict[str, Any],
    output: Path | None,
) -> bool:
    from paceline.bench.llm_engine import prompt_ids
    from paceline.check.local import run_check
    from paceline.check.replies import CheckPrompt
    from paceline.check.subject import Subject

    names = options.comma_list(drafter or "auto", "--drafter")
    llm = options.open_llm(model or options.DEFAULT_MODEL, drafter="auto", **llm_options)
    subject = Subject.of(llm, dict.fromkeys(names))
    asked = [CheckPrompt(prompt.id, tuple(prompt_ids(llm, prompt.messages(())))) for prompt in prompts]
    with _bar() as progress:
        result = run_check(subject, asked, settings, progress)
    _report_local(llm, result, output)
    return result.passed


def _report_local(llm: LLM, result: CheckResult, output: Path | None) -> None:
    from paceline.check.report import as_json, law_table, local_lines

    files, executor = llm.model_files, llm.executor
    about = {
        "model": f"{files.name} ({files.path.name})",
        "threads": executor.num_threads,
        "instruction_path": executor.path,
    }
    console = options.report_console()
    console.print(law_table(result.law), "")
    _print(local_lines(result), result.passed, console.print)
    console.print(
        f"{about['model']} · {', '.join(result.drafters)} · {result.num_prompts} prompts · seed "
        f"{result.settings.seed} · {executor.num_threads} threads, {executor.path}",
        markup=False,
    )
    _write(output, as_json(result, about), console.print)


def _endpoint_settings(
    endpoint: str,
    baseline: str | None,
    model: str | None,
    api: str | None,
    api_key: str | None,
    max_tokens: int | None,
    timeout: float | None,
) -> EndpointSettings:
    from paceline.bench.load.endpoint import parse_endpoint
    from paceline.check.endpoints import EndpointSettings

    limits: dict[str, Any] = {"max_tokens": max_tokens, "timeout": timeout}
    return EndpointSettings(
        parse_endpoint(endpoint, api or "chat"),
        None if baseline is None else parse_endpoint(baseline, api or "chat"),
        model,
        api_key or os.environ.get("PACELINE_API_KEY"),
        **{name: value for name, value in limits.items() if value is not None},
    )


def _check_servers(settings: EndpointSettings, prompts: Sequence[BenchPrompt], output: Path | None) -> bool:
    from paceline.check.endpoints import EndpointPrompt, check_endpoints
    from paceline.check.report import as_json, endpoint_lines

    asked = [EndpointPrompt(prompt.id, prompt.messages(())) for prompt in prompts]
    with _bar() as progress:
        result = check_endpoints(settings, asked, progress)
    console = options.report_console()
    _print(endpoint_lines(result), result.passed, console.print)
    _write(output, as_json(result, {}), console.print)
    return result.passed


def _print(lines: Sequence[str], passed: bool, show: Callable[..., None]) -> None:
    for line in lines:
        show(line, markup=False, soft_wrap=True)
    show(
        "everything holds" if passed else "NOT everything holds", style="bold green" if passed else "bold red"
    )


def _write(output: Path | None, data: dict[str, Any], show: Callable[..., None]) -> None:
    if output is not None:
        write_text(output, json.dumps(data, indent=2, ensure_ascii=False) + "\n")
        show(f"written to {output}", markup=False)


@contextmanager
def _bar() -> Iterator[Progress]:
    """Show a bar on stderr that starts anew with each part."""
    with options.counting_bar(24) as bar:
        tasks: dict[str, Any] = {}

        def advance(part: str, total: int, advance: int = 1) -> None:
            if part not in tasks:
                tasks[part] = bar.add_task(part, total=total)
            bar.advance(tasks[part], advance)

        yield advance
