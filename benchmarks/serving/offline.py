"""The engine without a server: a closed loop over the same prompts, in a process of its own.

python -m serving.offline     reads a task, a line of JSON; answers each further line [FIRST, STOP) with
                              {"seconds", "output_tokens", …} of these of its prompts
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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


class OfflineEngine:
    """The child process of a task."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def run(self, first: int, stop: int) -> dict[str, Any]:
        """Answer conversations ``first`` … ``stop - 1``. Raises ``RuntimeError`` when the child fails."""
        found: dict[str, Any] = self._exchange([first, stop])
        return found

    def _exchange(self, message: Any) -> Any:
        assert self._child.stdin is not None and self._child.stdout is not None
        with suppress(BrokenPipeError):  # the missing answer tells
            print(json.dumps(message), file=self._child.stdin, flush=True)
        if line := self._child.stdout.readline():
            return json.loads(line)
        raise RuntimeError(f"the engine failed with status {self._child.wait()}; it said why above")


@contextmanager
def offline_engine(task: Task) -> Iterator[OfflineEngine]:
    """Start a child, warm it up, end it."""
    child = subprocess.Popen(
        [sys.executable, "-m", "serving.offline"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parent.parent,
    )
    try:
        engine = OfflineEngine(child)
        engine._exchange(asdict(task))
        yield engine
    finally:
        child.kill()
        child.communicate()


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
        "later": later,
        "later_seconds": sum(steps[-1][0] - steps[0][0] for steps in times.values()),
    }


def main() -> None:
    """Read the task, warm up, answer what is asked for."""
    from paceline import LLM

    task = Task(**json.loads(sys.stdin.readline()))
    llm = LLM(
        task.model,
        threads=task.threads,
        max_model_len=task.context,
        kv_cache_tokens=task.context * task.width,
        max_num_requests=task.width,
    )
    encode = llm.model_files.chat_template.encode
    warm = _loop(llm, [tuple(encode(messages)) for messages in task.warm_ups], task.width, 8)
    print(json.dumps(warm), flush=True)
    prompts = [tuple(encode(messages)) for messages in task.conversations]
    for line in sys.stdin:
        first, stop = json.loads(line)
        print(json.dumps(_loop(llm, prompts[first:stop], task.width, task.max_tokens)), flush=True)


if __name__ == "__main__":
    main()
