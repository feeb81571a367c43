"""What was drafted when and why: the report of ``generate --explain``, and ``paceline explain``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated

import typer

from paceline.cli import options
from paceline.control.decisions import StepRecord
from paceline.control.summary import DraftSummary, summarise
from paceline.records import NO_SURCHARGE


def explain(
    prompt: Annotated[
        str | None, typer.Argument(help="What to answer; `-` or nothing reads standard input.")
    ] = None,
    model: options.Model = options.DEFAULT_MODEL,
    drafter: options.DrafterName = "auto",
    raw: Annotated[
        bool, typer.Option("--raw", help="Complete the text as it is, without the model's chat template.")
    ] = False,
    max_tokens: options.MaxTokens = 256,
    temperature: options.Temperature = 0.0,
    seed: options.Seed = None,
    num_draft_tokens: options.NumDraftTokens = None,
    threads: options.Threads = None,
) -> None:
    """Answer one prompt and tell what was drafted when, why, and what it brought.

    The reply goes to standard output, the report to standard error: see docs/controller.md for its columns.
    """
    from paceline.cli.generate import generate

    generate(
        prompt,
        model=model,
        drafter=drafter,
        raw=raw,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        num_draft_tokens=num_draft_tokens,
        threads=threads,
        explain=True,
    )


def print_report(records: Sequence[StepRecord], row_seconds: float) -> None:
    """Print the report on standard error. ``row_seconds``: time of a one-row forward, by the cost table."""
    for line in report_lines(records, row_seconds):
        print(line, file=sys.stderr)


def report_lines(records: Sequence[StepRecord], row_seconds: float) -> Iterator[str]:
    """Yield one line per step with a draft, one per run of steps without, then the sums."""
    yield (
        "token  rows  offered (nodes: tokens expected)                  drafted  predicted  kept    gain  why"
    )
    for is_silent, steps in groupby(records, key=lambda record: record.num_drafted == 0):
        if is_silent:
            yield _silent_line(list(steps))
        else:
            yield from map(_step_line, steps)
    yield from _sum_lines(summarise(records), row_seconds)
    yield from _clock_lines(records)


def _step_line(record: StepRecord) -> str:
    decision = record.decision
    offered, predicted = "", ""
    if decision is not None:
        offered = ", ".join(f"{c.source} {c.num_nodes}: {c.expected_tokens:.1f}" for c in decision.candidates)
        predicted = f"{decision.predicted_speed:.2f}"
    return (
        f"{record.position:5d} {record.load.num_rows:5d}  {offered:49.49s}  {record.num_drafted:7d}  "
        f"{predicted:>9s}  {record.num_accepted:4d}  {record.gain:+6.2f}  {record.reason}"
    )


def _silent_line(steps: Sequence[StepRecord]) -> str:
    """Steps without a draft differ in little but their cost: that of having asked."""
    first = steps[0]
    reasons = ", ".join(dict.fromkeys(step.reason for step in steps))
    count = f"{len(steps)} step{'s' if len(steps) > 1 else ''} without a draft"
    gain = sum(step.gain for step in steps)
    return (
        f"{first.position:5d} {first.load.num_rows:5d}  {count:49s}  {0:7d}  {'':>9s}  {'':4s}  "
        f"{gain:+6.2f}  {reasons}"
    )


def _clock_lines(records: Sequence[StepRecord]) -> Iterator[str]:
    """Say by how much the clock had corrected the cost table in the end, if it had."""
    surcharge = records[-1].load.surcharge if records else NO_SURCHARGE
    if surcharge != NO_SURCHARGE:
        yield (
            f"by the clock, drafts cost {surcharge.factor:.1f} times what the profile says and "
            f"{surcharge.asking:.2f} plain tokens for each asking; the figures above count that"
        )


def _verdict(total: DraftSummary) -> str:
    """Return whether drafting paid; a draft can cost more plain tokens than it has tokens."""
    needed = total.break_even_rate
    if needed > 1.0:
        return f"which cost {needed:.2f} plain tokens each: no acceptance would have paid"
    verdict = "drafting paid" if total.acceptance_rate > needed else "drafting did not pay"
    return f"break-even {needed:.0%}: {verdict}"


def _sum_lines(total: DraftSummary, row_seconds: float) -> Iterator[str]:
    reasons = ", ".join(f"{reason} {count}" for reason, count in total.reasons)
    yield f"{total.num_steps} steps, {total.num_drafts} of them with a draft ({reasons})"
    if not total.num_drafted:
        yield "nothing was drafted: plain decoding was expected to be as fast or faster"
        return
    yield f"acceptance {total.acceptance_rate:.0%} of {total.num_drafted} drafted tokens, {_verdict(total)}"
    yield (
        f"lost in steps that did not pay: {total.lost:.1f} plain tokens "
        f"(about {1e3 * row_seconds * total.lost:.0f} ms); gained in all: {total.gain:+.1f}; "
        f"predicted speed {total.modelled_speedup:.2f} x plain"
    )
