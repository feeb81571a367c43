"""``paceline theory``: what speculation can yield, before a model is loaded. Parsing and tables only."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TypeVar, cast

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from paceline.cli.theory_plots import FigureName, PlotSettings, write_plot
from paceline.errors import ConfigError
from paceline.theory import (
    CostCurve,
    DistributionCheck,
    Simulation,
    break_even_alpha,
    expected_tokens,
    make_draft,
    make_markov_target,
    make_target,
    optimal_draft_length,
    simulate,
    speedup,
    verify_distribution,
)
from paceline.theory.simulate import RuleName

T = TypeVar("T")

app = typer.Typer(
    name="theory",
    help="Expected tokens, speedup and break-even of speculative decoding, simulated and plotted.",
    no_args_is_help=True,
    add_completion=False,
)

Alphas = Annotated[
    str, typer.Option("--alpha", "-a", help="Acceptance of a draft token, e.g. 0.6,0.75,0.9.", metavar="LIST")
]
Lengths = Annotated[
    str, typer.Option("--lengths", "-k", help="Draft lengths, e.g. 2,4,6 or 1-8.", metavar="LIST")
]
DraftCost = Annotated[
    float,
    typer.Option("--draft-cost", "-c", help="Time of a draft step, in 1-row target forwards.", metavar="C"),
]
CostFile = Annotated[
    Path | None,
    typer.Option(
        "--cost-curve",
        help="JSON of `paceline profile` with the measured r(M). Without it verifying costs one forward.",
        metavar="FILE",
    ),
]


@app.command()
def table(
    alpha: Alphas = "0.5,0.6,0.7,0.75,0.8,0.9,0.95",
    lengths: Lengths = "1-8",
    draft_cost: DraftCost = 0.05,
    cost_curve: CostFile = None,
) -> None:
    """Print expected tokens per step and speedup for each acceptance and draft length.

    A chain of K yields (1 - alpha^(K+1)) / (1 - alpha) tokens per step; the
    speedup divides that by the cost of a step, K c + r(K + 1). The best cell
    of each row is starred, "best" looks up to 16 (or as far as the curve was
    measured), and the last row is the acceptance from which drafting pays.
    """
    alphas, ks, curve = parse_floats(alpha, "--alpha"), parse_lengths(lengths), read_cost_curve(cost_curve)
    most = curve.longest_draft
    if most is not None and max(ks) > most:
        raise ConfigError(
            f"--lengths goes to {max(ks)}, whose verification has {max(ks) + 1} rows, but {cost_curve} was "
            f"measured up to {most + 1}: give --lengths 1-{most}, or run `paceline profile` with more --rows"
        )
    console = Console()
    tokens = _grid("Expected tokens per step", "alpha", ks)
    for a in alphas:
        tokens.add_row(f"{a:g}", *(f"{expected_tokens(a, k):.2f}" for k in ks))
    console.print(tokens)
    console.print(_speedup_table(alphas, ks, draft_cost, curve))


@app.command()
def sweep(
    alignment: Annotated[
        str, typer.Option("--alignment", "-a", help="Acceptance built into each draft model.", metavar="LIST")
    ] = "0.60,0.75,0.90",
    lengths: Lengths = "2,4,6",
    vocab: Annotated[int, typer.Option("--vocab", help="Tokens of the synthetic models.")] = 64,
    tokens: Annotated[int, typer.Option("--tokens", "-n", help="Tokens to emit in each run.")] = 10_000,
    rule: Annotated[str, typer.Option("--rule", help="rejection, block or coupled.")] = "rejection",
    markov: Annotated[bool, typer.Option("--markov", help="Laws depend on the token before.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of models and draws.")] = 0,
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Write every count to this file.", metavar="FILE")
    ] = None,
) -> None:
    """Run the whole draft-verify-accept loop on synthetic models and compare it with the formula.

    Each run also draws as many tokens again, plainly and by speculation, and
    tests both against the target: the distance of exact samples lies near the
    noise printed beside it, and their p-values spread over 0 to 1. The formula
    is that of the rejection rule; block accepts a little more, coupled less.
    """
    alignments, ks = parse_floats(alignment, "--alignment"), parse_lengths(lengths)
    rng = np.random.default_rng(seed)
    target = make_markov_target(vocab, rng) if markov else make_target(vocab, rng)
    name = cast(RuleName, rule)  # simulate names the choices if it is none of them
    rows: list[tuple[float, Simulation, DistributionCheck]] = []
    for share in alignments:
        draft = make_draft(target, share, rng)
        for k in ks:
            run = simulate(target, draft, k, tokens, rng, name)
            rows.append((share, run, verify_distribution(target, draft, k, tokens, rng, name)))
    console = Console()
    console.print(_loop_table(rows, rule))
    console.print(_law_table(rows))
    if json_out is not None:
        _write(json_out, json.dumps([_sweep_record(*row) for row in rows], indent=1) + "\n")


@app.command()
def plot(
    out: Annotated[Path, typer.Argument(help="File to write; its suffix, .png or .svg, is the format.")],
    figure: Annotated[str, typer.Option("--figure", help="tokens, speedup, break-even or all.")] = "all",
    alpha: Alphas = "0.5,0.6,0.75,0.9",
    draft_cost: Annotated[
        str,
        typer.Option("--draft-cost", "-c", help="Costs of a draft step, one line each.", metavar="LIST"),
    ] = "0,0.05,0.1,0.3",
    speedup_alpha: Annotated[
        float, typer.Option("--speedup-alpha", help="Acceptance of the speedup figure.")
    ] = 0.75,
    longest: Annotated[int, typer.Option("--longest", help="Longest draft to show.")] = 12,
    cost_curve: CostFile = None,
) -> None:
    """Write plots: tokens against K, speedup against K, break-even acceptance. Needs matplotlib.

    Install it with: pip install "paceline\\[plot]"
    """
    settings = PlotSettings(
        alphas=parse_floats(alpha, "--alpha"),
        draft_costs=parse_floats(draft_cost, "--draft-cost"),
        speedup_alpha=speedup_alpha,
        longest=longest,
        curve=read_cost_curve(cost_curve),
    )
    write_plot(out, cast(FigureName, figure), settings)
    Console().print(f"wrote {out}", highlight=False, markup=False)


def parse_floats(text: str, option: str) -> list[float]:
    """Return the numbers of a comma-separated list; raise ``ConfigError`` naming the option otherwise."""
    return _parse_list(text, option, float, "numbers such as 0.6,0.75,0.9")


def parse_lengths(text: str) -> list[int]:
    """Return the draft lengths of a list such as ``2,4,6`` or ``0-8``."""
    lengths: list[int] = []
    for item in text.split(","):
        ends = _parse_list(item.replace("-", ","), "--lengths", int, "lengths such as 2,4,6 or 1-8")
        if len(ends) > 2 or ends[0] > ends[-1]:
            raise ConfigError(f"--lengths is {text!r}; give lengths such as 2,4,6 or 1-8")
        lengths += range(ends[0], ends[-1] + 1)
    return lengths


def read_cost_curve(path: Path | None) -> CostCurve:
    """Return the curve in the JSON of ``paceline profile`` (its ``r``), or the flat one without a file."""
    if path is None:
        return CostCurve.flat()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"--cost-curve {path} cannot be read ({error.strerror}); name a readable file"
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"--cost-curve {path} is no JSON ({error}); use `paceline profile --json`"
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get("r"), dict):
        raise ConfigError(f'--cost-curve {path} has no table "r"; use the file of `paceline profile --json`')
    return CostCurve.from_mapping(content["r"])


def _parse_list(text: str, option: str, convert: Callable[[str], T], example: str) -> list[T]:
    try:
        return [convert(item) for item in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"{option} is {text!r}; give {example}") from error


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


def _grid(title: str, corner: str, ks: Sequence[int]) -> Table:
    grid = _table(title)
    grid.add_column(corner, justify="right", style="bold", no_wrap=True)
    for k in ks:
        grid.add_column(f"K={k}", justify="right")
    return grid


def _speedup_table(alphas: Sequence[float], ks: Sequence[int], cost: float, curve: CostCurve) -> Table:
    verify = "a verification costs one forward" if curve.is_flat else "verification as measured"
    grid = _grid(f"Speedup for c = {cost:g}, {verify}", "alpha", ks)
    grid.add_column("best", justify="right")
    for alpha in alphas:
        gains = [speedup(alpha, k, cost, curve) for k in ks]
        cells = [f"[green]{g:.2f}*[/]" if g == max(gains) else f"{g:.2f}" for g in gains]
        grid.add_row(f"{alpha:g}", *cells, str(optimal_draft_length(alpha, cost, curve)))
    grid.add_section()
    limits = [break_even_alpha(k, cost, curve) for k in ks]
    grid.add_row("break-even", *("never" if limit is None else f"{limit:.2f}" for limit in limits), "")
    return grid


def _loop_table(rows: Sequence[tuple[float, Simulation, DistributionCheck]], rule: str) -> Table:
    grid = _table(f"Simulated loop, rule: {rule}")
    heads = ["align-\nment", "K", "target\ncalls", "draft\ncalls", "tokens\nper call", "by\nformula"]
    for head in [*heads, "accept.\nrate", "if\nreached", "calls\nsaved"]:
        grid.add_column(head, justify="right", no_wrap=True)
    for share, run, _ in rows:
        grid.add_row(
            f"{share:.2f}",
            str(run.K),
            str(run.target_calls),
            str(run.draft_calls),
            f"{run.tokens_per_call:.2f} ± {run.tokens_per_call_noise:.2f}",
            f"{run.expected_tokens_per_call:.2f}",
            f"{run.acceptance_rate:.3f}",
            f"{run.conditional_acceptance:.3f}",
            f"{run.saved_calls:.0%}",
        )
    return grid


def _law_table(rows: Sequence[tuple[float, Simulation, DistributionCheck]]) -> Table:
    grid = _table("Total variation (TV) from the target's law")
    for head in [
        "align-\nment",
        "K",
        "plain\nTV",
        "speculative\nTV",
        "noise\nTV",
        "plain\np-value",
        "spec.\np-value",
    ]:
        grid.add_column(head, justify="right", no_wrap=True)
    for share, run, check in rows:
        grid.add_row(
            f"{share:.2f}",
            str(run.K),
            f"{check.plain.total_variation:.4f}",
            f"{check.speculative.total_variation:.4f}",
            f"{check.sampling_noise:.4f}",
            f"{check.plain.p_value:.2g}",
            f"{check.speculative.p_value:.2g}",
        )
    return grid


def _sweep_record(alignment: float, run: Simulation, check: DistributionCheck) -> dict[str, object]:
    derived = {
        "tokens_per_call": run.tokens_per_call,
        "expected_tokens_per_call": run.expected_tokens_per_call,
        "acceptance_rate": run.acceptance_rate,
        "conditional_acceptance": run.conditional_acceptance,
        "saved_calls": run.saved_calls,
    }
    record = {"alignment": alignment, **asdict(run), **derived, "distribution": asdict(check)}
    if not math.isfinite(run.tokens_per_call_noise):
        record["tokens_per_call_noise"] = None  # a single step has no spread, and JSON no infinity
    return record


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--json {path} cannot be written ({error.strerror}); name another file") from error
