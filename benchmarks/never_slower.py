"""Is ``auto`` never slower than plain decoding, and as fast as the best fixed setting? Timed, in turns.

    python benchmarks/never_slower.py guard --json out/never.json [--batch 1 --batch 8] [--only chat]
    python benchmarks/never_slower.py fixed --json out/never.json [--only chat]
    python benchmarks/never_slower.py tables --json out/never.json --markdown tables.md

*guard*: the whole time of batches of 1, 8 and 32 requests under ``auto`` ÷ that under ``none``, prompts
included, both answering in turns of a few steps: our workloads (greedy, to the end token), random text, all
workloads mixed at temperature 1 and 1.5 without seeds, and a guarded drafter that is always wrong (each to
the cap). *fixed*: per workload all of
{drafter} × k ∈ 1 … 8 are screened with two prompts; each drafter's best and ``auto`` answer again in turns.

One process, one set of weights, drafters that know nothing when a batch begins. Each case is written to the
JSON file as soon as it is done; a later call goes on with what is missing. ``guard`` takes about 13 minutes
with SmolLM2-135M on two cores, ``fixed`` about 16.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fixed_settings import FixedResult, add_chain, run_workload
from guard_cases import BATCHES, ROUNDS, TOKENS, WORKLOADS, WRONG, Case, guard_cases, wrong_drafter
from guard_runs import CaseResult, run_case
from guard_tables import fixed_table, guard_table

from paceline import LLM
from paceline.bench.environment import describe_environment
from paceline.cli.files import write_text

MODEL = "smollm2-135m"
PROMPT_ROOM = 1024
Stored = dict[str, Any]


def load(path: Path) -> Stored:
    """Return what earlier calls have measured."""
    empty: Stored = {"environment": {}, "guard": {}, "fixed": {}}
    return {**empty, **json.loads(path.read_text(encoding="utf-8"))} if path.exists() else empty


def save(path: Path, stored: Stored, llm: LLM) -> None:
    """Write everything; a half-written file is never left behind."""
    stored["environment"] = asdict(describe_environment(llm.executor.num_threads, llm.executor.path))
    write_text(path, json.dumps(stored, indent=1))


def tables(stored: Stored) -> str:
    """Return both tables as Markdown."""
    cases = [CaseResult(**plain) for plain in stored["guard"].values()]
    fixed = [FixedResult(**plain) for plain in stored["fixed"].values()]
    parts = [guard_table(cases)] if cases else []
    return "\n\n".join([*parts, *([fixed_table(fixed)] if fixed else [])])


def opened(model: str, batch: int, drafter: Any = "auto", guard: bool | None = None) -> LLM:
    """Return the model with room for a batch."""
    room = batch * (PROMPT_ROOM + TOKENS[batch])
    return LLM(
        model,
        drafter=drafter,
        guard=guard,
        max_model_len=PROMPT_ROOM + max(TOKENS.values()),
        kv_cache_tokens=max(8192, room),
        max_num_requests=max(BATCHES),
    )


def llm_for(llm: LLM | None, model: str, case: Case, is_first: bool) -> LLM:
    """Return a model that can serve ``case``: a new one for another batch, and for the wrong drafter."""
    if case.drafter == WRONG:
        probe = llm or opened(model, case.batch)
        ends = probe.tokenizer.eos_token_ids
        unused = max(token for token in probe.tokenizer.control_tokens.values() if token not in ends)
        return opened(model, case.batch, wrong_drafter(unused), guard=True)
    return opened(model, case.batch) if llm is None or is_first else llm


def measure_guard(arguments: argparse.Namespace) -> None:
    """Measure the cases that the file lacks."""
    stored, llm, width = load(arguments.json), None, 0
    for case in guard_cases(arguments.batch or BATCHES, arguments.only):
        if case.key in stored["guard"]:
            continue
        llm = llm_for(llm, arguments.model, case, is_first=case.batch != width)
        width = case.batch
        result = run_case(llm, case, arguments.rounds or ROUNDS[case.batch])
        stored["guard"][case.key] = result.as_json()
        save(arguments.json, stored, llm)
        print(guard_table([result]).splitlines()[2], flush=True)


def measure_fixed(arguments: argparse.Namespace) -> None:
    """Measure the workloads that the file lacks."""
    stored, llm = load(arguments.json), opened(arguments.model, 1)
    drafters = add_chain(llm)
    for workload in WORKLOADS:
        if workload in stored["fixed"] or (arguments.only and workload not in arguments.only):
            continue
        result = run_workload(
            llm, workload, drafters, arguments.prompts, arguments.max_tokens, arguments.rounds or 3
        )
        stored["fixed"][workload] = result.as_json()
        save(arguments.json, stored, llm)
        print(fixed_table([result]).splitlines()[2], flush=True)


def parse_arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("guard", "fixed", "tables"))
    parser.add_argument("--json", type=Path, required=True, help="where results are kept and continued")
    parser.add_argument("--markdown", type=Path, help="where the tables go; printed in any case")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--batch", type=int, choices=BATCHES, action="append", default=[])
    parser.add_argument("--only", action="append", default=[], help="part of a case's label; repeat for more")
    parser.add_argument("--rounds", type=int, help="batches per case, repeats of the best settings")
    parser.add_argument("--prompts", type=int, default=5, help="of each workload, for fixed")
    parser.add_argument("--max-tokens", type=int, default=128, help="of a reply, for fixed")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> None:
    arguments = parse_arguments(given)
    if arguments.part == "guard":
        measure_guard(arguments)
    elif arguments.part == "fixed":
        measure_fixed(arguments)
    text = tables(load(arguments.json))
    print(text)
    if arguments.markdown is not None:
        write_text(arguments.markdown, text + "\n")


if __name__ == "__main__":
    main()
