"""Record replies for replay_drafters.py: prompt, reply and the target's eight likeliest tokens per position.

    python benchmarks/record_traces.py MODEL OUT.jsonl [--dataset FILE] [--per-workload 6] [--max-tokens 160]
        [--mode greedy ...] [--raw] [--head]

Every prompt is answered without drafting in each mode: greedily, sampled (temperature 0.8, top-p 0.95), at
temperature 1 and at 1.5; seed 1. ``--head`` also records what the target's draft head would draft at every
position.
Prompts come from the built-in workloads or from a data set in one of the forms of paceline.bench.datasets;
only the first turn is used.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from head_traces import PlainTree, recorder_of

from paceline import LLM, RequestOutput, SamplingParams
from paceline.bench.datasets import WORKLOADS, BenchPrompt, load_dataset, load_workload

NUM_TOP = 8
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.8, "top_p": 0.95, "seed": 1},
    "t1": {"temperature": 1.0, "seed": 1},
    "t1.5": {"temperature": 1.5, "seed": 1},
}


def chosen_prompts(dataset: Path | None, per_workload: int) -> Iterator[BenchPrompt]:
    """Yield the first ``per_workload`` prompts of every workload (category, for a data set)."""
    prompts = (
        load_dataset(dataset) if dataset else [prompt for name in WORKLOADS for prompt in load_workload(name)]
    )
    taken: Counter[str] = Counter()
    for prompt in prompts:
        taken[prompt.category] += 1
        if taken[prompt.category] <= per_workload:
            yield prompt


def as_trace(
    output: RequestOutput, category: str, mode: str, trees: dict[int, PlainTree] | None
) -> dict[str, Any]:
    """Return one line of a trace file."""
    completion = output.outputs[0]
    top = []
    for entries in completion.logprobs or ():
        ranked = sorted(entries, key=lambda token: entries[token].rank)
        top.append(ranked[:NUM_TOP])
    trace = {
        "category": category,
        "mode": mode,
        "prompt": list(output.prompt_token_ids),
        "reply": list(completion.token_ids),
        "top": top,
    }
    if trees is not None:
        first = len(output.prompt_token_ids) + 1
        trace["head"] = [trees.get(first + index) for index in range(len(completion.token_ids))]
    return trace


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--dataset", type=Path)
    parser.add_argument("--per-workload", type=int, default=6)
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--max-prompt", type=int, default=1600, help="longer prompts are left out")
    parser.add_argument("--mode", action="append", choices=tuple(MODES), help="default: greedy and sampled")
    parser.add_argument("--raw", action="store_true", help="without a chat template: for base models")
    parser.add_argument("--head", action="store_true", help="record the draft head's trees as well")
    arguments = parser.parse_args()
    llm = LLM(arguments.model, drafter="none")
    recorder = recorder_of(llm) if arguments.head else None
    if recorder is not None:
        llm = LLM(arguments.model, drafter=recorder)
    with arguments.out.open("w", encoding="utf-8") as file:
        for mode in arguments.mode or ("greedy", "sampled"):
            params = SamplingParams(**MODES[mode], max_tokens=arguments.max_tokens, logprobs=NUM_TOP)
            for prompt in chosen_prompts(arguments.dataset, arguments.per_workload):
                opening = [{"role": role, "content": text} for role, text in prompt.opening]
                messages = [*opening, {"role": "user", "content": prompt.turns[0]}]
                if arguments.raw:
                    (output,) = llm.generate(prompt.turns[0], params, use_tqdm=False)
                else:
                    (output,) = llm.chat(messages, params, use_tqdm=False)
                if len(output.prompt_token_ids) > arguments.max_prompt:
                    continue
                trees = recorder.trees.popitem()[1] if recorder is not None else None
                file.write(json.dumps(as_trace(output, prompt.category, mode, trees)) + "\n")
                file.flush()


if __name__ == "__main__":
    main()
