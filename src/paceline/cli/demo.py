"""``paceline demo``: a chat answer and an edit, plain and speculative, side by side as they are produced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli import options

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from paceline.bench.duel import Contender, Verdict
    from paceline.llm import LLM
    from paceline.sampling.params import SamplingParams

CHAT = (
    "My sourdough bread comes out flat and dense. What are the likely causes, and what can I do about each?"
)
EDIT = "Polish this letter where it can be better, and keep the rest as it is."
LETTER_ID = "rewrite-08"
FRAMES_PER_SECOND = 12


@dataclass(frozen=True, slots=True)
class Scene:
    """One prompt of the demo."""

    title: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both sides of a scene when they have finished, and whether they agree."""

    scene: Scene
    plain: Contender
    fast: Contender
    verdict: Verdict


def demo(
    model: options.Model = options.DEFAULT_MODEL,
    drafter: options.DrafterName = "auto",
    max_tokens: options.MaxTokens = 200,
    temperature: options.Temperature = 0.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Used at temperature > 0.")] = 1,
    num_draft_tokens: options.NumDraftTokens = None,
    threads: options.Threads = None,
) -> None:
    """Show plain and speculative decoding side by side, then compare them token by token and bit by bit.

    Example: paceline demo --model smollm2-135m --drafter auto

    The two sides take turns, each on its own clock, so neither slows the other. Text that came several tokens
    at a time is green.
    """
    from rich.console import Console

    from paceline.sampling.params import SamplingParams

    params = SamplingParams(
        temperature=temperature, max_tokens=max_tokens, seed=seed if temperature > 0.0 else None
    )
    plain = options.open_llm(model, drafter="none", threads=threads, record_logit_hashes=True)
    fast = options.open_llm(
        model, drafter=drafter, num_draft_tokens=num_draft_tokens, threads=threads, record_logit_hashes=True
    )
    console = Console(highlight=False)
    outcomes = [play(console, scene, plain, fast, drafter, params) for scene in scenes()]
    console.print(summary(outcomes, drafter))
    if not all(outcome.verdict.identical for outcome in outcomes):
        raise typer.Exit(1)


def scenes() -> list[Scene]:
    """Return the two prompts: one to answer freely, one that repeats most of what it is given."""
    from paceline.bench.datasets import load_workload

    source = next(prompt for prompt in load_workload("rewrite") if prompt.id == LETTER_ID)
    letter = source.turns[0].partition("\n\n")[2]
    return [Scene("a question", CHAT), Scene("an edit", f"{EDIT}\n\n{letter}")]


def play(
    console: Console, scene: Scene, plain: LLM, fast: LLM, drafter: str, params: SamplingParams
) -> Outcome:
    """Run one scene and show it as it happens; on something that is no terminal, show it when it is done."""
    from rich.live import Live

    from paceline.bench.duel import Contender, compare, run_duel
    from paceline.bench.llm_engine import prompt_ids

    sides = [Contender("plain", plain.engine), Contender(f"drafter {drafter}", fast.engine)]
    ids = prompt_ids(plain, [{"role": "user", "content": scene.prompt}])
    console.print(f"\n[bold]{scene.title}[/bold]: {scene.prompt.splitlines()[0]}")
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            frames = 0.0
            for _ in run_duel(sides, ids, params):
                spent = sum(side.seconds for side in sides) * FRAMES_PER_SECOND
                if spent >= frames:
                    frames = spent + 1.0
                    live.update(side_by_side(console, sides), refresh=True)
            live.update(side_by_side(console, sides), refresh=True)
    else:
        for _ in run_duel(sides, ids, params):
            pass
        for side in sides:
            console.print(f"--- {heading(side)}\n", markup=False)
            console.print(side.text, markup=False)
    first, second = (side.completion for side in sides)
    assert first is not None and second is not None
    return Outcome(scene, sides[0], sides[1], compare(first, second))


def heading(side: Contender) -> str:
    """Return who this is and how fast."""
    return f"{side.name} · {side.num_tokens} tokens · {side.seconds:.1f} s · {side.tokens_per_s:.0f} tokens/s"


def side_by_side(console: Console, sides: Sequence[Contender]) -> Table:
    """Return both replies in columns, the last lines of each that fit the terminal."""
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    width, height = console.width // len(sides) - 4, max(6, console.height - 6)
    grid = Table.grid(expand=True)
    replies = []
    for side in sides:
        text = Text()
        for piece in side.pieces:
            text.append(piece.text, style="green" if piece.num_tokens > 1 else "")
        replies.append(text.wrap(console, width)[-height:])
        grid.add_column(ratio=1)
    tallest = max(len(lines) for lines in replies)
    grid.add_row(
        *(
            Panel(Text("\n").join(lines), title=heading(side), title_align="left", height=tallest + 2)
            for side, lines in zip(sides, replies, strict=True)
        )
    )
    return grid


def summary(outcomes: Sequence[Outcome], drafter: str) -> Table:
    """Return the closing table: one column for each scene."""
    from rich.table import Table

    table = Table(title=f"drafter {drafter} against plain decoding", title_justify="left")
    table.add_column("")
    for outcome in outcomes:
        table.add_column(outcome.scene.title, justify="right")
    columns = [figures(outcome) for outcome in outcomes]
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    return table


def figures(outcome: Outcome) -> dict[str, str]:
    """Return what the closing table says about a scene, by row."""
    completion = outcome.fast.completion
    assert completion is not None
    metrics = completion.metrics
    return {
        "plain": f"{outcome.plain.tokens_per_s:.1f} tokens/s",
        "speculative": f"{outcome.fast.tokens_per_s:.1f} tokens/s",
        "speedup": f"{outcome.plain.seconds / outcome.fast.seconds:.2f}x",
        "tokens per step": f"{metrics.tokens_per_step:.2f}",
        "acceptance": f"{metrics.acceptance_rate:.0%}" if metrics.num_draft_tokens else "nothing drafted",
        "forwards saved": f"{metrics.num_forwards_saved} of {metrics.num_output_tokens}",
        "identical": describe_verdict(outcome.verdict),
    }


def describe_verdict(verdict: Verdict) -> str:
    """Return what was compared and found: ids, and the bits of the logits behind them."""
    if verdict.identical:
        return "yes (ids and logit bits)"
    return "NO: logit bits differ" if verdict.same_tokens else "NO: tokens differ"
