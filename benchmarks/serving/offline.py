"""The engine without a server: a closed loop over the same prompts, in a process of its own.

python -m serving.offline < TASK.json     prints {"seconds", "output_tokens", …}
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paceline.bench.datasets import BenchPrompt


@dataclass(frozen=True, slots=True)
class Task:
    """``conversations``: lists of messages, ``width`` of them at once; ``warm_ups`` come before the clock."""

    model: str
    threads: int
    context: int
    width: int
    max_tokens: int
    warm_ups: Sequence[list[dict[str, str]]]
    conversations: Sequence[list[dict[str, str]]]


def run_offline(task: Task) -> dict[str, Any]:
    """Run a task in a child process. Raises ``RuntimeError`` when it fails."""
    child = subprocess.run(
        [sys.executable, "-m", "serving.offline"],
        input=json.dumps(asdict(task)),
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parent.parent,
    )
    if child.returncode:
        raise RuntimeError(f"the engine failed:\n{child.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return result


def conversations(prompts: Sequence[BenchPrompt]) -> list[list[dict[str, str]]]:
    """Return what the load driver sends for these prompts."""
    return [prompt.messages(()) for prompt in prompts]


def _loop(llm: Any, prompts: Sequence[Sequence[int]], width: int, max_tokens: int) -> dict[str, Any]:
    from paceline import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    engine, number = llm.engine, 0
    times: dict[str, list[tuple[float, int]]] = {}
    start = time.perf_counter()
    while engine.has_unfinished or number < len(prompts):
        while number < len(prompts) and len(engine.request_ids) < width:
            engine.add_request(str(number), prompts[number], params)
            number += 1
        outputs = engine.step()
        now = time.perf_counter()
        for output in outputs:
            times.setdefault(output.request_id, []).append((now, len(output.token_ids)))
    tokens = sum(count for steps in times.values() for _, count in steps)
    later = tokens - sum(steps[0][1] for steps in times.values())
    return {
        "seconds": time.perf_counter() - start,
        "output_tokens": tokens,
        "prompt_tokens": sum(map(len, prompts)),
        "decode_rate": later / max(1e-9, sum(steps[-1][0] - steps[0][0] for steps in times.values())),
    }


def main() -> None:
    """Read the task, run it, print what it gave."""
    from paceline import LLM

    task = Task(**json.load(sys.stdin))
    llm = LLM(
        task.model,
        threads=task.threads,
        max_model_len=task.context,
        kv_cache_tokens=task.context * task.width,
        max_num_requests=task.width,
    )
    encode = llm.model_files.chat_template.encode
    _loop(llm, [tuple(encode(messages)) for messages in task.warm_ups], task.width, 8)
    prompts = [tuple(encode(messages)) for messages in task.conversations]
    print(json.dumps(_loop(llm, prompts, task.width, task.max_tokens)))


if __name__ == "__main__":
    main()
