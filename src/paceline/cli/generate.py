"""``paceline generate``: answer one prompt."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli import options
from paceline.errors import PromptError

if TYPE_CHECKING:
    from paceline.engine.outputs import RequestOutput
    from paceline.llm import LLM
    from paceline.sampling.params import SamplingParams


def generate(
    prompt: Annotated[
        str | None, typer.Argument(help="What to answer; `-` or nothing reads standard input.")
    ] = None,
    model: options.Model = options.DEFAULT_MODEL,
    drafter: options.DrafterName = "auto",
    raw: Annotated[
        bool, typer.Option("--raw", help="Complete the text as it is, without the model's chat template.")
    ] = False,
    system: options.System = None,
    max_tokens: options.MaxTokens = 256,
    temperature: options.Temperature = 0.0,
    top_p: options.TopP = 1.0,
    top_k: options.TopK = 0,
    min_p: options.MinP = 0.0,
    seed: options.Seed = None,
    stop: Annotated[
        list[str] | None, typer.Option("--stop", metavar="TEXT", help="End the reply before this text.")
    ] = None,
    prediction: Annotated[
        str | None, typer.Option("--prediction", metavar="TEXT", help="Text you expect in the reply.")
    ] = None,
    num_draft_tokens: options.NumDraftTokens = None,
    threads: options.Threads = None,
    context: options.Context = None,
    quant: options.QuantName = "none",
    stats: Annotated[bool, typer.Option("--stats", help="Say on stderr what speculation did.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say on stderr what was drafted when, why, and what it brought.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole result as JSON at the end.")
    ] = False,
) -> None:
    """Answer one prompt, streaming the text to standard output.

    Examples:
    paceline generate "Why is the sky blue?" --temperature 0.7 --seed 1
    paceline generate --raw "Once upon a time" < /dev/null
    """
    from paceline.sampling.params import SamplingParams

    text = _prompt_text(prompt)
    params = SamplingParams(
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        max_tokens=max_tokens,
        seed=seed,
        stop=tuple(stop or ()),
        prediction=prediction,
    )
    llm = options.open_llm(
        model,
        drafter=drafter,
        num_draft_tokens=num_draft_tokens,
        threads=threads,
        context=context,
        quant=quant,
        watch_drift=True,
        record_decisions=explain,
    )
    output = _stream(llm, text, system, raw, params, quiet=as_json)
    if as_json:
        print(json.dumps(asdict(output), ensure_ascii=False))
    if stats:
        from paceline.cli.stats import describe_metrics

        print(describe_metrics(output.metrics), file=sys.stderr)
    if explain:
        from paceline.cli.explain import print_report

        print_report(output.outputs[0].steps or (), llm.engine.costs.row_seconds)


def _prompt_text(prompt: str | None) -> str:
    if prompt is not None and prompt != "-":
        if not prompt:  # more often an unset variable of the shell than a wish
            raise PromptError("the prompt is empty: give some text")
        return prompt
    if options.is_interactive() and prompt is None:
        raise PromptError("there is no prompt: give it as an argument, or pipe it into standard input")
    text = sys.stdin.read()
    if not text.strip():
        raise PromptError("the prompt from standard input is empty")
    return text


def _stream(
    llm: LLM, text: str, system: str | None, raw: bool, params: SamplingParams, quiet: bool
) -> RequestOutput:
    """Print the reply as it comes; return the whole."""
    if raw:
        if system is not None:
            raise PromptError(
                "--system needs the chat template: leave out --raw, or write it into the prompt"
            )
        reply = llm.stream(text, params)
    else:
        options.require_chat_template(llm)
        messages = [{"role": "system", "content": system}] if system is not None else []
        reply = llm.stream_chat([*messages, {"role": "user", "content": text}], params)
    with reply:
        for piece in reply:
            if not quiet:
                print(piece, end="", flush=True)
    if not quiet:
        print()
    assert reply.output is not None
    return reply.output
