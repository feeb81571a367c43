"""``paceline export``: the same drafting in vLLM, SGLang or llama.cpp."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from paceline.cli import options


def export(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="vllm, sglang or llama.cpp.")],
    model: options.Model = options.DEFAULT_MODEL,
    drafter: options.DrafterName = "auto",
    num_draft_tokens: options.NumDraftTokens = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the words of the command as JSON.")] = False,
) -> None:
    """Print the command that starts another engine with the equivalent of these settings.

    Example: paceline export vllm --config paceline.toml

    Lines that begin with # say which version the names were checked against, and what has no equivalent.
    """
    from paceline.advise.export import Setup
    from paceline.advise.export import export as translate
    from paceline.config import SpecConfig

    spec = SpecConfig(drafter, num_draft_tokens)
    found = translate(engine, Setup(model, drafter, spec.draft_limit))
    print(json.dumps(asdict(found), ensure_ascii=False) if as_json else found.text)
    if not found.command:
        raise typer.Exit(1)
