#!/usr/bin/env python3
"""The serving bars: ``paceline serve`` beside ``llama-server`` on the same file, and beside its own engine.

    python benchmarks/serving_bars.py --model FILE.gguf --llama-server PATH --out out/serving.json

Each point has a server of its own, started afresh, so that neither prefix caches nor what drafters have
learnt help; llama-server is also asked with ``cache_prompt: false``. Prompts, caps (EOS honoured),
temperature 0, slots, context of a slot and threads are the same; systems take turns in each repeat. The
client is that of ``paceline bench``, and it shares the machine with whichever server runs.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from serving.bars import Bar, all_bars, point_rows
from serving.measure import Plan, Results, measure
from serving.servers import Machine

from paceline.bench.environment import describe_environment
from paceline.models.loading import load_model_files

PARTS = ("load", "ttft", "prefix")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True, type=Path, help="a GGUF file")
    add("--llama-server", type=Path, help="the binary; without it its bars are left out")
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    add("--at-once", type=int, nargs="+", default=[1, 8, 32], metavar="N")
    add("--repeats", type=int, default=3)
    add("--max-tokens", type=int, default=128)
    add("--prompts-per-slot", type=int, default=2, help="requests of a point ÷ N; 1 at once asks all of chat")
    add("--ttft-prompts", type=int, default=8)
    add("--shared-prompts", type=int, default=4, help="system prompts, each asked behind twice")
    add("--threads", type=int, default=2)
    add("--context", type=int, default=2048, help="tokens of a slot")
    add("--out", type=Path, help="JSON of all figures")
    add("--log", type=Path, default=Path("out/serving.log"), help="what the servers print")
    return parser.parse_args(arguments)


def make_plan(options: argparse.Namespace) -> Plan:
    """Return what to measure. Raises ``SystemExit`` for files that are not there."""
    for path in (options.model, options.llama_server):
        if path is not None and not path.is_file():
            raise SystemExit(f"{path} is no file")
    with load_model_files(options.model) as files:
        tokenizer, template = files.tokenizer, files.chat_template
    server = None if options.llama_server is None else options.llama_server.resolve()
    return Plan(
        machine=Machine(options.model.resolve(), server, options.threads, options.context, options.log),
        parts=tuple(options.parts),
        widths=tuple(options.at_once),
        repeats=options.repeats,
        max_tokens=options.max_tokens,
        prompts_per_slot=options.prompts_per_slot,
        num_ttft=options.ttft_prompts,
        num_shared=options.shared_prompts,
        length=lambda prompt: len(template.encode(prompt.messages(()))),
        text_length=lambda text: len(tokenizer.encode(text, add_bos=False)),
    )


def as_json(options: argparse.Namespace, results: Results, bars: list[Bar]) -> dict[str, Any]:
    """Return plain data of a run."""
    return {
        "settings": {name: str(value) for name, value in vars(options).items()},
        "environment": asdict(describe_environment(options.threads, "")),
        "bars": [{**asdict(bar), "value": bar.value, "is_met": bar.is_met} for bar in bars],
        "points": [asdict(point) for point in results.points],
        "ttft_seconds": results.ttft,
        "shared_seconds": results.shared,
        "mean_prompt_tokens": results.prompt_tokens,
    }


def main() -> None:
    """Measure, print the tables, write the file."""
    options = parse()
    plan = make_plan(options)
    results = measure(plan, lambda line: print(line, flush=True))
    bars = all_bars(plan, results)
    print("\n" + "\n".join(point_rows(results)) + "\n")
    print(f"| bar (median of {plan.repeats}) | measured | bar | |\n|---|---|---|---|")
    print("\n".join(bar.row() for bar in bars))
    for name, tokens in results.prompt_tokens.items():
        print(f"prompts of {name}: {tokens:.0f} tokens on average")
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(as_json(options, results, bars), indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
