"""One engine, with a server in front of it and without: in one process, for two are not equally fast.

Two processes over the same weights differed by up to a fifth, each for as long as it lived: memory lies
elsewhere. What a server costs is less than that.

python -m serving.hosted     reads a task, a line of JSON, and serves; answers each further line:
                             [FIRST, STOP)   {"seconds", "output_tokens", …} of these of its prompts, asked of
                                             the engine itself, in a closed loop
                             "forget"        nothing, and has forgotten what prompts and replies it has met
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paceline.bench.datasets import BenchPrompt


@dataclass(frozen=True, slots=True)
class Task:
    """``conversations``: lists of messages, ``width`` of them at once; ``warm_ups`` come before the clock.
    ``port``: where the server listens.
    """

    model: str
    port: int
    threads: int
    context: int
    width: int
    max_tokens: int
    warm_ups: Sequence[list[dict[str, str]]]
    conversations: Sequence[list[dict[str, str]]]


class HostedEngine:
    """The child process of a task. ``address``: of its server."""

    def __init__(self, child: subprocess.Popen[str], port: int) -> None:
        self._child = child
        self.address = f"http://127.0.0.1:{port}"

    def run(self, first: int, stop: int) -> dict[str, Any]:
        """Answer conversations ``first`` … ``stop - 1``. Raises ``RuntimeError`` when the child fails."""
        found: dict[str, Any] = self._exchange([first, stop])
        return found

    def forget(self) -> None:
        """Let nothing of the prompts and replies so far help with the next ones."""
        self._exchange("forget")

    def _exchange(self, message: Any) -> Any:
        assert self._child.stdin is not None and self._child.stdout is not None
        with suppress(BrokenPipeError):  # the missing answer tells
            print(json.dumps(message), file=self._child.stdin, flush=True)
        if line := self._child.stdout.readline():
            return json.loads(line)
        raise RuntimeError(f"the engine failed with status {self._child.wait()}; it said why above")


@contextmanager
def hosted_engine(task: Task) -> Iterator[HostedEngine]:
    """Start a child, warm it up, end it."""
    child = subprocess.Popen(
        [sys.executable, "-m", "serving.hosted"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parent.parent,
    )
    try:
        engine = HostedEngine(child, task.port)
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


@contextmanager
def _serving(llm: Any, port: int) -> Iterator[None]:
    """Serve as ``paceline serve`` does, on another thread."""
    from paceline.server.run import SWITCH_SECONDS, make_server
    from paceline.server.settings import ServerSettings

    sys.setswitchinterval(SWITCH_SECONDS)
    server = make_server(llm, ServerSettings(("model",)), "127.0.0.1", port)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise SystemExit(f"no server could be started at port {port}")
        time.sleep(0.01)
    yield
    server.should_exit = True
    thread.join()


def _forget(llm: Any) -> None:
    while llm.engine.has_unfinished:  # what a client has read to its end may not be over yet
        time.sleep(0.001)
    llm.engine.forget_drafters()
    llm.engine.clear_prefix_cache()


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
    with _serving(llm, task.port):
        warm = _loop(llm, [tuple(encode(messages)) for messages in task.warm_ups], task.width, 8)
        print(json.dumps(warm), flush=True)
        prompts = [tuple(encode(messages)) for messages in task.conversations]
        for line in sys.stdin:
            message = json.loads(line)
            if message == "forget":
                _forget(llm)
                print("null", flush=True)
                continue
            first, stop = message
            print(json.dumps(_loop(llm, prompts[first:stop], task.width, task.max_tokens)), flush=True)


if __name__ == "__main__":
    main()
