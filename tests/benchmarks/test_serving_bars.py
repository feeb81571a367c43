"""The serving bars, run with stand-ins for the servers and the engine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import serving_bars
from serving import bars, hosted, measure, prompts, servers
from serving.measure import ENGINE, LLAMA, OURS, PLAIN, Plan, Point, Results
from serving.servers import Machine

from support.openai_server import PIECES, openai_server
from support.tiny_models import write_tiny_gguf

HERE = Machine(Path("model.gguf"), Path("llama-server"), 2, 64, Path("log"))
PLAN = Plan(HERE, ("load",), (1, 8), 2, 16, 1, 2, 2, lambda prompt: len(prompt.turns[0].split()), len)


def point(system: str, width: int, seconds: float, gap: float = 0.01, repeat: int = 0) -> Point:
    rates = {"decode_rates": (1000 / seconds,), "token_gaps": (gap,), "step_gaps": (gap,)}
    return Point(system, width, repeat, seconds, 1000, 500, **rates)  # type: ignore[arg-type]


def results_of(width: int, *, ours: float, engine: float, llama: float, gap: float = 0.01) -> Results:
    """Two repeats that give the same."""
    times = {OURS: ours, PLAIN: ours, ENGINE: engine, LLAMA: llama}
    found = [
        point(system, width, seconds, gap if system == OURS else 0.01, repeat)
        for repeat in range(2)
        for system, seconds in times.items()
    ]
    return Results([replace(p, token_gaps=(), step_gaps=()) if p.system == ENGINE else p for p in found])


def judged(results: Results, width: int) -> dict[str, bool]:
    plan = replace(PLAN, widths=(width,))
    return {bar.name.partition(",")[0].partition(":")[0]: bar.is_met for bar in bars.all_bars(plan, results)}


@pytest.mark.parametrize(("width", "most", "least"), [(1, 1.05, 2.5), (8, 1.10, 3.0), (32, 1.10, 3.0)])
def test_each_width_has_its_bars(width: int, most: float, least: float) -> None:
    name = "streamed decoding" if width == 1 else "total tokens/s"
    good = judged(results_of(width, ours=most - 0.01, engine=1.0, llama=(most - 0.01) * least + 0.01), width)
    assert good[name] and good["HTTP and streaming"]
    bad = judged(results_of(width, ours=most + 0.01, engine=1.0, llama=(most + 0.01) * least - 0.01), width)
    assert not bad[name] and not bad["HTTP and streaming"]


def test_gaps_are_compared_with_those_without_speculation() -> None:
    assert all(judged(results_of(8, ours=1, engine=1, llama=9, gap=0.0149), 8).values())
    late = judged(results_of(8, ours=1, engine=1, llama=9, gap=0.0151), 8)
    assert [name for name, met in late.items() if not met] == [
        "p99 gap per token",
        "p99 gap between pieces of text",
    ]


def test_first_tokens_are_judged_by_medians() -> None:
    results = Results(ttft=[{OURS: (0.1, 0.1, 9.0), LLAMA: (0.2, 0.2, 0.2)}], shared=[(0.8, 0.1, 0.8, 0.1)])
    first, again = bars.all_bars(replace(PLAN, widths=()), results)
    assert (first.value, first.is_met, again.value, again.is_met) == (0.5, True, 8.0, True)
    assert "≥ 8.00 × | met" in again.row()


def test_without_llama_server_its_bars_are_left_out() -> None:
    results = results_of(8, ours=1, engine=1, llama=1)
    results.points = [p for p in results.points if p.system != LLAMA]
    assert "total tokens/s" not in judged(results, 8)


def test_prompts_have_their_size_and_none_comes_twice() -> None:
    sized = prompts.sized_prompts(60, 5, 1, PLAN.length)
    assert [PLAN.length(prompt) for prompt in sized] == [60] * 5
    assert len({prompt.turns for prompt in sized}) == 5
    pairs = prompts.shared_prompts(200, 3, 1, lambda text: len(text.split()))
    assert [pair.opening for pair in pairs[::2]] == [pair.opening for pair in pairs[1::2]]
    assert len({pair.opening for pair in pairs}) == 3
    mixed = prompts.mixed_prompts(64)
    asked = [prompt.turns[0] for prompt in (*mixed, *prompts.warm_ups(32), prompts.WARM_UP)]
    assert len(set(asked)) == len(asked)


def test_both_servers_get_the_same_slots() -> None:
    ours, llama = HERE.paceline(1234, 8), HERE.llama(1234, 8)
    assert ours[ours.index("--kv-cache-tokens") + 1] == llama[llama.index("--ctx-size") + 1] == str(8 * 64)
    assert ours[ours.index("--max-num-requests") + 1] == llama[llama.index("--parallel") + 1] == "8"
    assert ours[ours.index("--threads") + 1] == llama[llama.index("--threads") + 1] == "2"


def test_a_server_that_does_not_start_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    with pytest.raises(SystemExit, match="status 3"), servers.running(command, 1, tmp_path / "log"):
        raise AssertionError("it never runs")


def test_a_whole_run_with_stand_ins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bodies: dict[str, list[dict[str, Any]]] = {}

    @contextmanager
    def server(machine: Machine, system: str, width: int) -> Iterator[str]:
        with openai_server(dialect="llama.cpp" if system == LLAMA else "paceline") as behaviour:
            yield behaviour.url
            bodies.setdefault(system, []).extend(behaviour.bodies)

    monkeypatch.setattr(measure, "_server", server)

    @contextmanager
    def engine(task: hosted.Task) -> Iterator[StandInEngine]:
        with openai_server(dialect="paceline") as behaviour:
            yield StandInEngine(behaviour.url)
            bodies.setdefault(OURS, []).extend(behaviour.bodies)

    monkeypatch.setattr(measure, "hosted_engine", engine)
    model = write_tiny_gguf(tmp_path / "tiny.gguf", "llama", "q8_0", seed=3)
    binary = tmp_path / "llama-server"
    binary.touch()
    out = tmp_path / "out" / "bars.json"
    sizes = ["--at-once", "1", "2", "--repeats", "2", "--ttft-prompts", "2", "--shared-prompts", "2"]
    monkeypatch.setattr(serving_bars, "load_model_files", stand_in_files)
    arguments = ["--model", str(model), "--llama-server", str(binary), "--out", str(out), *sizes]
    monkeypatch.setattr(sys, "argv", ["serving_bars.py", *arguments])
    serving_bars.main()
    found = json.loads(out.read_text())
    assert [(p["system"], p["width"], p["repeat"]) for p in found["points"]] == [
        (system, width, repeat)
        for repeat, systems in enumerate([(OURS, PLAIN, ENGINE, LLAMA), (PLAIN, ENGINE, LLAMA, OURS)])
        for width in (1, 2)
        for system in systems
    ]
    assert found["points"][0]["output_tokens"] == 12 * sum(PIECES), "all of chat"
    assert len(found["bars"]) == 2 * 4 + 2
    assert all(body["cache_prompt"] is False for body in bodies[LLAMA])
    plain = [body for body in bodies[OURS] if body.get("speculative") == {"enabled": False}]
    assert 0 < len(plain) < len(bodies[OURS]), "the server of ours is asked with and without drafts"
    assert "first token behind a repeated system prompt" in capsys.readouterr().out


class StandInEngine:
    """Answers each conversation with nine tokens."""

    def __init__(self, address: str) -> None:
        self.address = address

    def forget(self) -> None:
        """It learns nothing."""

    def run(self, first: int, stop: int) -> dict[str, Any]:
        count = stop - first
        return {
            "seconds": 1.0,
            "output_tokens": 9 * count,
            "prompt_tokens": 9 * count,
            "later": 8 * count,
            "later_seconds": 0.5,
        }


class StandInFiles:
    """Counts words for tokens."""

    def __enter__(self) -> StandInFiles:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @property
    def tokenizer(self) -> StandInFiles:
        return self

    @property
    def chat_template(self) -> StandInFiles:
        return self

    def encode(self, text: Any, add_bos: bool = True) -> list[str]:
        return " ".join(part["content"] for part in text).split() if isinstance(text, list) else text.split()


def stand_in_files(model: Path) -> StandInFiles:
    return StandInFiles()


def test_the_engine_alone_keeps_its_width_and_counts_every_token(tmp_path: Path) -> None:
    from paceline import LLM

    model = write_tiny_gguf(tmp_path / "tiny.gguf", "llama", "q8_0", seed=3)
    llm = LLM(model, threads=1, max_num_requests=2)
    widths = []
    step = llm.engine.step

    def watched() -> Any:
        widths.append(len(llm.engine.request_ids))
        return step()

    llm.engine.step = watched  # type: ignore[method-assign]
    found = hosted._loop(llm, [(5, 6, 7 + n) for n in range(5)], 2, 4)
    assert max(widths) == 2
    assert found["prompt_tokens"] == 15
    assert 5 <= found["output_tokens"] <= 20
    assert found["later"] == found["output_tokens"] - 5
    assert 0 < found["later_seconds"] <= 2 * found["seconds"]


def test_the_engine_alone_answers_what_it_is_told_to(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", "llama", "q8_0", seed=3)
    asked = [[{"role": "user", "content": text}] for text in ("a b", "c d e", "f")]
    task = hosted.Task(str(model), servers.free_port(), 1, 64, 1, 4, asked[:1], asked)
    with hosted.hosted_engine(task) as engine:
        one, rest = engine.run(0, 1), engine.run(1, 3)
        assert one["output_tokens"] <= 4 < rest["output_tokens"] <= 8
        replies, _, _ = measure.ask(engine.address, OURS, [prompts.WARM_UP], 1, 4)
        assert len(replies) == 1, "the same process serves"
        engine.forget()
        assert engine.run(0, 1)["output_tokens"] == one["output_tokens"]
        with pytest.raises(RuntimeError, match="the engine failed with status 1"):
            engine._exchange("no pair of numbers")


def test_one_request_at_once_is_judged_by_prompts_asked_in_turns() -> None:
    """A machine became twice as fast between two systems: minus 4 % and plus 34 % for HTTP in one hour."""
    moods = (1.0, 2.0, 0.5)
    rates = {OURS: 100.0, PLAIN: 100.0, ENGINE: 104.0, LLAMA: 39.0}
    points = [
        replace(point(system, 1, 1.0, repeat=repeat), decode_rates=tuple(rate * mood for mood in moods))
        for repeat in range(2)
        for system, rate in rates.items()
    ]
    measured = {bar.name.partition(",")[0]: bar.value for bar in bars.all_bars(PLAN, Results(points))}
    assert measured["HTTP and streaming"] == pytest.approx(0.04)
    assert measured["streamed decoding"] == pytest.approx(100 / 39)
