#!/usr/bin/env python3
"""Paceline beside llama.cpp, OpenVINO GenAI and transformers: same file, prompts, cap and threads, in turns.

Nothing is installed here; an engine that is missing or cannot read the model is skipped and named. Peers may
live in another environment::

    python benchmarks/peers.py --model smollm2-135m --peer-python /path/to/other/venv/bin/python

Parts: ``forward`` (1 to 16 rows, logits for every row), ``prompt`` (512 tokens), ``generate`` (greedy replies
to the built-in workloads, plain and with each engine's own speculation). Each repeat visits every engine
once; the tables hold medians.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from peering import measure, tables
from peering.measure import Plan, Results
from peering.process import PeerProcess
from peering.protocol import PeerSettings, PeerUnavailableError

from paceline.bench.datasets import load_workload
from paceline.profiling.machine import cpu_name

ENGINES = ("paceline", "llama.cpp", "openvino-genai", "transformers")
PARTS = ("forward", "prompt", "generate")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True, help="a GGUF file, a model folder, or a name that `paceline models` lists")
    add("--peers", nargs="+", choices=ENGINES, default=list(ENGINES))
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    add("--peer-python", default=sys.executable, help="interpreter that has the other engines")
    add("--threads", type=int, default=2)
    add("--context", type=int, default=2048)
    add("--rows", type=int, nargs="+", default=[1, 2, 3, 4, 6, 8, 12, 16])
    add("--depth", type=int, default=512, help="tokens already in the cache")
    add("--forwards", type=int, default=10, help="forwards per width, engine and repeat")
    add("--prompt-tokens", type=int, default=512)
    add("--workload", nargs="+", default=["chat", "rewrite"])
    add("--prompts", type=int, default=4, help="prompts of each workload")
    add("--max-tokens", type=int, default=128)
    add("--repeat", type=int, default=3)
    add("--json", type=Path)
    add("--markdown", type=Path)
    add("--log", type=Path, default=Path("out/peers.log"), help="what the engines print")
    return parser.parse_args(arguments)


def model_path(name: str) -> str:
    """Return the path of a model given by path or by catalog name."""
    if Path(name).exists():
        return str(Path(name).resolve())
    from paceline.models.catalog import resolve_model

    return str(resolve_model(name))


def open_peers(
    options: argparse.Namespace, stack: ExitStack, log: IO[bytes], results: Results
) -> dict[str, PeerProcess]:
    """Start every engine that can be had; the others are noted."""
    settings = PeerSettings(model_path(options.model), options.threads, options.context)
    peers = {}
    for name in options.peers:
        python = sys.executable if name == "paceline" else options.peer_python
        try:
            peers[name] = stack.enter_context(PeerProcess(name, python, settings, log))
        except (PeerUnavailableError, RuntimeError) as error:
            results.notes.append(f"{name}: {error}")
    return peers


def prompts_of(options: argparse.Namespace, ours: PeerProcess) -> list[list[int]]:
    """Return the token ids every engine is given: our workloads through the model's chat template."""
    rows = [row for name in options.workload for row in load_workload(name)[: options.prompts]]
    return [ours.call("tokenize", messages=row.messages([])) for row in rows]


def run(options: argparse.Namespace) -> tuple[Plan, Results, dict[str, Any]]:
    """Measure what was asked for."""
    plan = Plan(
        parts=tuple(options.parts),
        rows=tuple(options.rows),
        depth=options.depth,
        forwards=options.forwards,
        prompt_tokens=options.prompt_tokens,
        max_tokens=options.max_tokens,
        repeats=options.repeat,
    )
    results = Results()
    with ExitStack() as stack:
        options.log.parent.mkdir(parents=True, exist_ok=True)
        log = stack.enter_context(options.log.open("wb"))
        peers = open_peers(options, stack, log, results)
        if "forward" in plan.parts:
            measure.measure_forwards(peers, plan, results)
        if "prompt" in plan.parts:
            measure.measure_prompts(peers, plan, results)
        if "generate" in plan.parts:
            if "paceline" not in peers:
                raise SystemExit("part generate needs paceline among --peers: it turns the prompts into ids")
            ours = peers["paceline"]
            measure.measure_replies(peers, plan, prompts_of(options, ours), ours.call("eos"), results)
        described = {name: peer.description for name, peer in peers.items()}
    facts = {
        "model": Path(options.model).name,
        "cpu": cpu_name(),
        "threads": options.threads,
        "peers": described,
    }
    return plan, results, facts


def main() -> None:
    """Measure, print the tables, write the files."""
    options = parse()
    plan, results, facts = run(options)
    text = tables.markdown(plan, results, facts)
    print(text)
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps(tables.as_json(plan, results, facts), indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
