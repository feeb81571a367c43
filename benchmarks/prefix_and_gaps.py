"""What the prefix cache saves, what it costs a draft head, and what a long prompt costs the streams beside it
(docs/scheduling.md).

python benchmarks/prefix_and_gaps.py MODEL
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import pairwise

from paceline import LLM, SamplingParams
from paceline.bench.datasets import load_workload
from paceline.engine.engine import Engine

SHARED_TOKENS, TAIL_TOKENS, LONG_TOKENS = 1000, 24, 4000
BEFORE_STEPS = 100
DEFAULT = (("none", 1), ("none", 4), ("auto", 1), ("auto", 4))


def case(text: str) -> tuple[str, int]:
    drafter, _, streams = text.rpartition(":")
    return drafter, int(streams)


def ttft(llm: LLM, prompt: list[int]) -> float:
    """Return the seconds to the first token."""
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    return llm.generate([prompt], params, use_tqdm=False)[0].metrics.ttft_seconds


def shared_prompt(llm: LLM, text: list[int], repeats: int) -> None:
    """Print the first and the second request's time to the first token."""
    first, second = [], []
    for number in range(repeats):
        llm.start_afresh()
        shared, rest = text[number : number + SHARED_TOKENS], text[2000:]
        tails = [rest[(number * 2 + i) * TAIL_TOKENS :][:TAIL_TOKENS] for i in range(2)]
        first.append(ttft(llm, shared + tails[0]))
        second.append(ttft(llm, shared + tails[1]))
    one, two = statistics.median(first), statistics.median(second)
    print(
        f"{SHARED_TOKENS} + {TAIL_TOKENS} tokens: {one * 1e3:.1f} ms, then {two * 1e3:.1f}: {one / two:.1f} x"
    )


def head_behind_a_hit(llm: LLM, num_talks: int) -> None:
    """Print what a draft head achieves on second turns, by what of the prompt it has seen.

    ``whole``: nothing is cached. ``new turn``: the first turn was just answered. ``last block``: the
    very same prompt was.
    """
    texts = [
        row.turns[0][:600] for name in ("chat", "code", "math", "summarize") for row in load_workload(name)
    ]
    params = SamplingParams(temperature=0, max_tokens=96, drafter="eagle3")
    totals = {"whole": [0, 0, 0, 0], "new turn": [0, 0, 0, 0], "last block": [0, 0, 0, 0]}
    for first, second in list(zip(texts[::2], texts[1::2], strict=False))[:: max(1, 20 // num_talks)]:
        talk = [{"role": "user", "content": first}]
        (reply,) = llm.chat(talk, params, use_tqdm=False)
        talk += [{"role": "assistant", "content": reply.outputs[0].text}, {"role": "user", "content": second}]
        for name in ("new turn", "last block", "whole"):
            if name == "whole":
                llm.engine.clear_prefix_cache()
            metrics = llm.chat(talk, params, use_tqdm=False)[0].metrics
            counts = (metrics.num_output_tokens, metrics.num_verify_steps)
            seen = (metrics.num_cached_tokens, metrics.num_prompt_tokens)
            totals[name] = [old + new for old, new in zip(totals[name], (*counts, *seen), strict=True)]
    for name, (tokens, steps, cached, prompt) in totals.items():
        print(f"head, {name}: {tokens / steps:.3f} tokens per step of {tokens}; {cached} of {prompt} cached")


def gaps(engine: Engine, num_steps: int | None, until: str = "") -> list[float]:
    """Return the seconds between steps, all of which give the streams tokens, until ``until`` has one."""
    times = [time.perf_counter()]
    while num_steps is None or len(times) <= num_steps:
        outputs = engine.step()
        times.append(time.perf_counter())
        if any(output.request_id == until for output in outputs):
            break
    return [after - before for before, after in pairwise(times)]


def start_streams(llm: LLM, text: list[int], drafter: str, streams: int) -> None:
    llm.start_afresh()
    for number in range(streams):
        # Drawn, because greedy text of a small model soon repeats itself, and then drafts are always right.
        params = SamplingParams(seed=number, max_tokens=7000, ignore_eos=True, drafter=drafter)
        llm.engine.add_request(f"s{number}", text[number * 50 : number * 50 + 60], params)
    gaps(llm.engine, BEFORE_STEPS)


def end_streams(engine: Engine, streams: int) -> None:
    assert {f"s{number}" for number in range(streams)} <= set(engine.running_ids), "a stream ended too early"
    for request_id in engine.request_ids:
        engine.abort(request_id)


def long_prompt(llm: LLM, text: list[int], drafter: str, streams: int) -> None:
    """Print the 99th percentile of the gaps of streams beside a long prompt, and of the same steps of the
    same streams without it: they get slower as they get longer, whatever is beside them.
    """
    engine = llm.engine
    start_streams(llm, text, drafter, streams)
    long = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, drafter=drafter)
    start = time.perf_counter()
    engine.add_request("long", (text * 4)[:LONG_TOKENS], long)
    beside = gaps(engine, None, until="long")
    seconds = time.perf_counter() - start
    end_streams(engine, streams)
    start_streams(llm, text, drafter, streams)
    alone = gaps(engine, len(beside))
    end_streams(engine, streams)
    p99 = [statistics.quantiles(values, n=100)[98] for values in (alone, beside)]
    median = [statistics.median(values) for values in (alone, beside)]
    print(
        f"{drafter}, {streams} streams: p99 gap {p99[0] * 1e3:.1f} -> {p99[1] * 1e3:.1f} ms "
        f"({p99[1] / p99[0]:.2f} x), median {median[0] * 1e3:.1f} -> {median[1] * 1e3:.1f} ms; the prompt "
        f"took {seconds:.2f} s in {len(beside)} steps of {quarters(beside)} ms, which alone take "
        f"{quarters(alone)} (median of each quarter)",
        flush=True,
    )


def quarters(values: list[float]) -> str:
    size = max(1, len(values) // 4)
    parts = [statistics.median(values[at : at + size]) for at in range(0, len(values), size)][:4]
    return ", ".join(f"{part * 1e3:.1f}" for part in parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--repeats", type=int, default=3, help="shared prompts; 0: none")
    parser.add_argument("--streams", type=case, action="append", help="DRAFTER:NUMBER, for example auto:4")
    parser.add_argument("--talks", type=int, default=10, help="conversations for the draft head; 0: none")
    arguments = parser.parse_args()
    llm = LLM(arguments.model, max_model_len=8192, kv_cache_tokens=36864)
    text = llm.tokenizer.encode(" ".join(f"Item {n}: {n * n % 97} apples for {n % 13}." for n in range(400)))
    ttft(llm, text[:50])
    if arguments.repeats:
        shared_prompt(llm, text, arguments.repeats)
    if arguments.talks:
        head_behind_a_hit(llm, arguments.talks)
    for drafter, streams in arguments.streams or DEFAULT:
        long_prompt(llm, text, drafter, streams)


if __name__ == "__main__":
    main()
