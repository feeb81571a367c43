"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from paceline.cli.config_file import loaded_drift
from paceline.errors import ConfigError, PromptError, nearest_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from paceline.llm import LLM
    from paceline.models.loading import Quant

DEFAULT_MODEL = "smollm2-135m"
REPORT_WIDTH = 140

Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="A name from `paceline models`, a GGUF file, a model folder, or hf:org/repo[:file].",
    ),
]
DrafterName = Annotated[
    str,
    typer.Option(
        "--drafter",
        "-d",
        metavar="NAME",
        help="none, ngram, suffix, recycle, prediction, auto, eagle3[:HEAD], draft_model:MODEL or "
        "draft_model:self:N.",
    ),
]
NumDraftTokens = Annotated[
    int | None, typer.Option("--num-draft-tokens", "-k", metavar="K", help="Most tokens of one draft.")
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", "-t", metavar="N", help="Threads of the executor (default: all cores)."),
]
QuantName = Annotated[
    str,
    typer.Option(
        "--quant",
        metavar="TYPE",
        help="q4 or q8 quantises the weights of a Hugging Face folder while they are read; none keeps them.",
    ),
]
Context = Annotated[
    int | None,
    typer.Option("--context", metavar="N", help="Longest prompt and reply together, in tokens."),
]
MaxTokens = Annotated[int, typer.Option("--max-tokens", "-n", metavar="N", help="Most tokens of a reply.")]
Temperature = Annotated[
    float, typer.Option("--temperature", metavar="T", help="0 is greedy; higher is more varied.")
]
TopP = Annotated[
    float, typer.Option("--top-p", metavar="P", help="Keep the likeliest tokens up to this mass.")
]
TopK = Annotated[int, typer.Option("--top-k", metavar="K", help="Keep the K likeliest tokens; 0 keeps all.")]
MinP = Annotated[
    float,
    typer.Option("--min-p", metavar="P", help="Keep tokens with at least P times the highest probability."),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Makes a sampled reply repeatable, with any drafter."),
]
System = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="System message.")]


def comma_list(text: str, option: str) -> tuple[str, ...]:
    """Return the non-empty parts of ``a,b,c``. Raises ``ConfigError`` when there is none."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:
        raise ConfigError(f"{option} is empty: give one or more names, separated by commas")
    return parts


def comma_lists(texts: Sequence[str] | None, option: str) -> list[str]:
    """Return the parts of an option that may come several times."""
    return [part for text in texts or () for part in comma_list(text, option)]


def numbers(text: str | None, option: str, kind: type[Any]) -> Any:
    """Return a tuple of numbers, ``None`` for ``None``. Raises ``ConfigError``."""
    if text is None:
        return None
    try:
        return tuple(kind(part) for part in comma_list(text, option))
    except ValueError as error:
        raise ConfigError(f"{option} {text!r}: give numbers separated by commas") from error


def open_llm(
    model: str,
    *,
    drafter: str,
    num_draft_tokens: int | None = None,
    threads: int | None = None,
    context: int | None = None,
    quant: str = "none",
    record_logit_hashes: bool = False,
    record_decisions: bool = False,
    watch_drift: bool = False,
    profile: str | None = None,
) -> LLM:
    """Load a model, with a sign of life on stderr while it takes its time.

    ``profile``: as for ``LLM``. ``watch_drift``: heed the ``[drift]`` table of ``--config``; measurements do
    not, they vary on purpose.
    """
    from rich.console import Console

    from paceline.llm import LLM
    from paceline.profiling.progress import giving_way

    with Console(stderr=True).status(f"loading {model}") as status, giving_way(status.stop):
        return LLM(
            model,
            drafter,
            num_draft_tokens,
            threads=threads,
            max_model_len=context,
            quant=quant_named(quant),
            record_logit_hashes=record_logit_hashes,
            record_decisions=record_decisions,
            drift=loaded_drift() if watch_drift else None,
            profile=profile,
        )


def quant_named(text: str) -> Quant:
    """Return the conversion called ``text``. Raises ``ConfigError`` for an unknown one."""
    from paceline.models.loading import Quant

    known = get_args(Quant)
    if text not in known:
        raise ConfigError(f"--quant {text!r} is not one of {', '.join(known)}{nearest_name(text, known)}")
    return cast("Quant", text)


def counting_bar(width: int) -> Progress:
    """Return a bar on stderr for counted work, so that tables can be redirected; ``width``: of its label."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    label = TextColumn(f"{{task.description:<{width}}}")
    columns = (label, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def report_console() -> Console:
    """Return a console for tables: as wide as the terminal, and wide enough for every column in a file."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=REPORT_WIDTH)


def require_chat_template(llm: LLM) -> None:
    """Raise ``PromptError`` for a base model, in the words of the command line."""
    if llm.model_files.chat_template_text is None:
        raise PromptError(
            f"{llm.model_files.name} is a base model without a chat template: complete text with "
            "`paceline generate --raw`, or pick an instruct model"
        )


def is_interactive() -> bool:
    """Return whether somebody types on standard input. Raises ``PromptError`` when it is closed."""
    if sys.stdin is None:
        raise PromptError("standard input is closed: give it a terminal, a pipe or </dev/null")
    return sys.stdin.isatty()
