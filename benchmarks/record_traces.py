"""Record replies for replay_drafters.py: prompt, reply and the target's eight likeliest tokens per position.

    python benchmarks/record_traces.py MODEL OUT.jsonl [--dataset FILE] [--per-workload 6] [--max-tokens 160]

Every prompt is answered twice without drafting, greedily and sampled (temperature 0.8, top-p 0.95, seed 1).
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

from paceline import LLM, RequestOutput, SamplingParams
from paceline.bench.datasets import WORKLOADS, BenchPrompt, load_dataset, load_workload

NUM_TOP = 8


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


def as_trace(output: RequestOutput, category: str, mode: str) -> dict[str, Any]:
    """Return one line of a trace file."""
    completion = output.outputs[0]
    top = []
    for entries in completion.logprobs or ():
        ranked = sorted(entries, key=lambda token: entries[token].rank)
        top.append(ranked[:NUM_TOP])
    return {
        "category": category,
        "mode": mode,
        "prompt": list(output.prompt_token_ids),
        "reply": list(completion.token_ids),
        "top": top,
    }


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
    arguments = parser.parse_args()
    llm = LLM(arguments.model, drafter="none")
    common = {"max_tokens": arguments.max_tokens, "logprobs": NUM_TOP}
    modes = {
        "greedy": SamplingParams(temperature=0.0, **common),
        "sampled": SamplingParams(temperature=0.8, top_p=0.95, seed=1, **common),
    }
    with arguments.out.open("w", encoding="utf-8") as file:
        for mode, params in modes.items():
            for prompt in chosen_prompts(arguments.dataset, arguments.per_workload):
                opening = [{"role": role, "content": text} for role, text in prompt.opening]
                messages = [*opening, {"role": "user", "content": prompt.turns[0]}]
                (output,) = llm.chat(messages, params, use_tqdm=False)
                if len(output.prompt_token_ids) > arguments.max_prompt:
                    continue
                file.write(json.dumps(as_trace(output, prompt.category, mode)) + "\n")
                file.flush()


if __name__ == "__main__":
    main()
