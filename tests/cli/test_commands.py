"""The commands that load a model, on a tiny one with random weights."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from paceline import LLM, SamplingParams
from paceline.cli import demo as demo_command
from support.command_line import Program
from support.tiny_models import write_tiny_gguf, write_tiny_hf


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("cli") / "tiny.gguf", "llama", "q8_0", seed=3))


@pytest.fixture(scope="module")
def llm(model: str) -> LLM:
    return LLM(model, drafter="none", threads=1)


@pytest.fixture
def paceline(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(monkeypatch, capsys)


def expected(llm: LLM, messages: list[dict[str, str]], max_tokens: int) -> str:
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    return llm.chat(messages, params)[0].outputs[0].text


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_generate_streams_what_the_library_gives(paceline: Program, model: str, llm: LLM) -> None:
    common = ("-m", model, "-n", "12", "-t", "1")
    text = expected(llm, [user("the rest")], 12)
    assert paceline("generate", "the rest", *common)[:2] == (0, text + "\n")
    assert paceline("generate", *common, stdin="the rest")[:2] == (0, text + "\n")
    system = expected(llm, [{"role": "system", "content": "be"}, user("the rest")], 12)
    assert paceline("generate", "the rest", "--system", "be", *common)[1] == system + "\n"
    raw = llm.generate("the rest", SamplingParams(temperature=0, max_tokens=12))[0].outputs[0].text
    assert paceline("generate", "--raw", "the rest", *common)[1] == raw + "\n"


def test_explain_tells_what_each_step_drafted_and_what_it_brought(paceline: Program, model: str) -> None:
    common = ("a a a a a a", "-m", model, "-n", "24", "-t", "1")
    status, out, err = paceline("explain", *common)
    assert status == 0
    assert out == paceline("generate", *common)[1]
    assert "gain  why" in err
    assert "0 steps, " not in err
    assert "steps, " in err
    assert "steps, " in paceline("generate", *common, "--explain", "--drafter", "suffix")[2]
    assert "gain" not in paceline("generate", *common)[2]


def test_generate_as_json_and_with_statistics(paceline: Program, model: str) -> None:
    status, out, err = paceline(
        "generate", "the rest", "-m", model, "-n", "12", "-t", "1", "--json", "--stats"
    )
    assert status == 0
    data = json.loads(out)
    assert len(data["outputs"][0]["token_ids"]) == data["outputs"][0]["metrics"]["num_output_tokens"] <= 12
    assert "tokens/step" in err


def test_generate_refuses_a_system_message_without_a_template(paceline: Program, model: str) -> None:
    status, _, err = paceline("generate", "--raw", "x", "--system", "y", "-m", model, "-t", "1")
    assert status == 2
    assert "--system needs the chat template" in err


def test_quant_converts_folders_and_is_refused_elsewhere(
    paceline: Program, model: str, tmp_path: Path
) -> None:
    folder = str(write_tiny_hf(tmp_path / "tiny", "llama"))
    short = ("generate", "hello", "--max-tokens", "6", "--json", "--model")
    texts = {}
    for quant in ("none", "q8", "q4"):
        status, out, err = paceline(*short, folder, "--quant", quant)
        assert status == 0, err
        texts[quant] = json.loads(out.splitlines()[-1])["outputs"][0]["token_ids"]
    assert texts["none"] != texts["q4"], "four bits are too few to change nothing in a random model"
    status, _, err = paceline(*short, model, "--quant", "q4")
    assert status == 2 and "applies to Hugging Face folders" in err
    status, _, err = paceline(*short, folder, "--quant", "q88")
    assert status == 2 and "did you mean 'q8'?" in err


def test_chat_over_pipes_keeps_its_history(paceline: Program, model: str, llm: LLM) -> None:
    """Only replies reach standard output; the second one depends on the first."""
    first = expected(llm, [user("the rest")], 8)
    second = expected(llm, [user("the rest"), {"role": "assistant", "content": first}, user("of it")], 8)
    script = "the rest\nof it\n/undo\nof it\n/reset\nthe rest\n/quit\nnot read\n"
    status, out, _ = paceline("chat", "-m", model, "-n", "8", "-t", "1", stdin=script)
    assert status == 0
    assert out == "".join(text + "\n" for text in (first, second, second, first))


def test_chat_commands(paceline: Program, model: str, llm: LLM) -> None:
    script = "/stats\n/help\n/undo\n/statz\n/system be\nthe rest\n/stats\n"
    status, out, err = paceline("chat", "-m", model, "-n", "8", "-t", "1", stdin=script)
    assert status == 0, "the end of the input ends the conversation"
    assert "there is no finished reply yet" in out
    assert all(command in out for command in ("/help", "/stats", "/undo", "/reset", "/system", "/quit"))
    assert "there is nothing to take back" in err
    assert "/statz is no command (did you mean '/stats'?)" in err
    assert expected(llm, [{"role": "system", "content": "be"}, user("the rest")], 8) in out
    assert "tokens in 1 replies" in out


def test_a_chat_that_outgrows_the_context_is_an_error_with_a_way_out(paceline: Program, model: str) -> None:
    status, _, err = paceline(
        "chat", "-m", model, "-n", "4", "-t", "1", "--context", "48", stdin="the rest " * 60
    )
    assert status == 2
    assert err.strip().splitlines()[-1].startswith("paceline: ")


def test_bench_prints_tables_and_writes_json(paceline: Program, model: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        '{"prompt": "the rest of the rest"}\n{"question_id": 1, "category": "two", "turns": ["a", "b"]}\n'
    )
    out_file = tmp_path / "out" / "bench.json"
    arguments = ("-m", model, "-d", "ngram", "-n", "12", "-r", "2", "-t", "1")
    status, out, _ = paceline("bench", *arguments, "--dataset", str(rows), "--json", str(out_file))
    assert status == 0
    assert "at most 12 tokens" in out
    data = json.loads(out_file.read_text())
    assert [(run["workload"], run["drafter"]) for run in data["runs"]] == [
        ("rows", "none"),
        ("rows", "ngram"),
        ("two", "none"),
        ("two", "ngram"),
    ]
    assert all(run["identical_share"] == 1.0 for run in data["runs"])
    assert data["environment"]["threads"] == 1


def test_bench_with_temperature_is_identical_too(paceline: Program, model: str, tmp_path: Path) -> None:
    out_file = tmp_path / "bench.json"
    arguments = ("-m", model, "-d", "recycle,auto", "-w", "chat,math", "--limit", "1", "-n", "10", "-r", "1")
    status, _, _ = paceline("bench", *arguments, "-t", "1", "--temperature", "0.8", "--json", str(out_file))
    assert status == 0
    runs = json.loads(out_file.read_text())["runs"]
    assert len(runs) == 2 * 3
    assert all(run["identical_share"] == 1.0 for run in runs)


def test_bench_asks_first_turns_and_prints_the_mean(paceline: Program, model: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    entries = [(category, n) for category in ("writing", "stem") for n in range(2)] + [("qa", 0)]
    rows.write_text(
        "".join(json.dumps({"category": name, "turns": [f"rest {n}", "b"]}) + "\n" for name, n in entries)
    )
    out_file = tmp_path / "bench.json"
    arguments = ("-m", model, "-d", "ngram", "-n", "4", "-r", "1", "-t", "1", "--limit", "2", "--first-turn")
    status, out, _ = paceline("bench", *arguments, "--dataset", str(rows), "--json", str(out_file))
    assert status == 0
    assert "mean over workloads" in out
    assert "first turn only" in out
    data = json.loads(out_file.read_text())
    assert [(run["workload"], run["num_replies"]) for run in data["runs"][1::2]] == [
        ("mt-bench", 2),
        ("qa", 1),
    ]
    parts = data["runs"][1]["categories"]
    assert {name: part["num_replies"] for name, part in parts.items()} == {"writing": 1, "stem": 1}
    assert [mean["num_workloads"] for mean in data["mean_over_workloads"]] == [2, 2]


def test_bench_with_fresh_noise(paceline: Program, model: str, tmp_path: Path) -> None:
    out_file = tmp_path / "bench.json"
    arguments = ("-m", model, "-d", "ngram", "-w", "chat", "--limit", "1", "-n", "10", "-r", "1", "-t", "1")
    unseeded = ("--temperature", "1", "--unseeded", "--json", str(out_file))
    status, out, _ = paceline("bench", *arguments, *unseeded)
    assert status == 0
    assert "temperature 1, unseeded" in out
    assert "mean over workloads" not in out, "there is only one"
    runs = json.loads(out_file.read_text())["runs"]
    assert [run["identical_share"] for run in runs] == [None, None]


def test_bench_in_batches_and_at_temperatures(paceline: Program, model: str, tmp_path: Path) -> None:
    """Every case of drafter, workload, batch and temperature; its file compares with itself."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"the rest {n}"}) + "\n" for n in range(3)))
    out_file = tmp_path / "bench.json"
    arguments = ("-m", model, "-d", "ngram", "-n", "8", "-r", "2", "-t", "1", "--dataset", str(rows))
    cases = ("--batch", "1,4", "--temperature", "0,1", "--price-per-hour", "0.5")
    status, out, _ = paceline("bench", *arguments, *cases, "--json", str(out_file))
    assert status == 0
    assert "rows · batch 4 · temperature 1" in out
    assert "greedy, temperature 1 · batch 1, 4" in out
    assert "cost/Mtok" in out
    data = json.loads(out_file.read_text())
    assert data["kind"] == "offline"
    assert (data["settings"]["batches"], data["settings"]["temperatures"]) == ([1, 4], [0.0, 1.0])
    found = [(run["temperature"], run["batch"], run["drafter"]) for run in data["runs"]]
    assert found == [(t, b, d) for t in (0.0, 1.0) for b in (1, 4) for d in ("none", "ngram")]
    for run in data["runs"]:
        assert run["identical_share"] == 1.0
        assert run["num_replies"] == (3 if run["batch"] == 1 else 4)
        for name in ("ttft_s", "tpot_s", "itl_token_s", "itl_step_s", "request_tokens_per_s"):
            assert run[name] is None or set(run[name]) == {"p50", "p95", "p99", "mean"}
        assert run["speedup_ci"][0] <= run["speedup_ci"][1]
        assert run["cost_per_million_tokens"] == pytest.approx(0.5e6 / 3600 / run["tokens_per_s"])
    status, out, _ = paceline("bench", "compare", str(out_file), str(out_file))
    assert status == 0
    assert "0 better, 0 worse" in out


def test_demo_compares_ids_and_bits(paceline: Program, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenes = [
        demo_command.Scene("a question", "the rest"),
        demo_command.Scene("an edit", "the rest of the rest"),
    ]
    monkeypatch.setattr(demo_command, "scenes", lambda: scenes)
    status, out, _ = paceline("demo", "-m", model, "-n", "16", "-t", "1", "-d", "ngram")
    assert status == 0
    assert out.count("yes (ids and logit bits)") == 2
    assert "forwards saved" in out


def test_demo_fails_when_the_two_differ(
    paceline: Program, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict is a comparison, not a caption."""
    from paceline.bench import duel

    monkeypatch.setattr(demo_command, "scenes", lambda: [demo_command.Scene("a question", "the rest")])
    monkeypatch.setattr(duel, "compare", lambda first, second: duel.Verdict(True, False))
    status, out, _ = paceline("demo", "-m", model, "-n", "4", "-t", "1")
    assert status == 1
    assert "NO: logit bits differ" in out


def test_demo_draws_both_sides_on_a_terminal(model: str) -> None:
    from rich.console import Console

    plain, fast = (LLM(model, name, threads=1, record_logit_hashes=True) for name in ("none", "ngram"))
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=90, height=20)
    params = SamplingParams(temperature=0, max_tokens=12)
    scene = demo_command.Scene("a question", "the rest")
    outcome = demo_command.play(console, scene, plain, fast, "ngram", params)
    assert outcome.verdict.identical
    assert "plain ·" in output.getvalue()
    assert "drafter ngram ·" in output.getvalue()


def test_profile_writes_the_cost_curve(
    paceline: Program, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    out_file = tmp_path / "profile.json"
    status, out, _ = paceline(
        "profile", "-m", model, "--rows", "1-3", "-r", "3", "--depth", "8", "-t", "1", "--json", str(out_file)
    )
    assert status == 0, out
    data = json.loads(out_file.read_text())
    assert data["r"]["1"] == 1.0
    assert set(data["ms"]) == {"1", "2", "3"}
    assert "r(M)" in out
    assert "no costs are stored yet" in out


def test_profile_keeps_the_costs_and_shows_them(
    paceline: Program, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    out_file = tmp_path / "costs.json"
    status, out, _ = paceline("profile", "-m", model, "-t", "1", "--refresh", "--json", str(out_file))
    assert status == 0, out
    (kept,) = (tmp_path / "cache" / "profiles").iterdir()
    written, stored = json.loads(out_file.read_text()), json.loads(kept.read_text())
    assert written["table"] == stored["table"]
    assert written["r"]["1"] == 1.0
    assert "suffix" in out
    curve = paceline("theory", "table", "--cost-curve", str(out_file), "-k", "1-3")
    assert curve[0] == 0, curve[1]
    status, out, _ = paceline("profile", "-m", model, "-t", "1", "--rows", "1-2", "-r", "3")
    assert status == 0, out
    assert stored["measured_at"] in out
    assert kept.name[:20] in out


def test_a_base_model_is_refused_before_the_first_question(
    paceline: Program, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from paceline.models.loading import ModelFiles

    real = ModelFiles.__init__

    def without_template(self: ModelFiles, *arguments: object, **named: object) -> None:
        real(self, *arguments, **named)  # type: ignore[arg-type]
        object.__setattr__(self, "chat_template_text", None)

    monkeypatch.setattr(ModelFiles, "__init__", without_template)
    # The bench is for base models too: they continue the prompts' texts.
    bench = (
        "bench",
        "-m",
        model,
        "-d",
        "ngram",
        "-w",
        "chat",
        "--limit",
        "1",
        "-n",
        "4",
        "-r",
        "1",
        "-t",
        "1",
    )
    status, out, _ = paceline(*bench)
    assert status == 0
    assert "plain prompts (base model)" in out
    for command in (("chat",), ("generate", "the rest")):
        status, out, err = paceline(*command, "-m", model, "-t", "1", stdin="the rest\n")
        assert (status, out) == (2, "")
        assert "paceline generate --raw" in err
    assert paceline("generate", "--raw", "the rest", "-m", model, "-t", "1", "-n", "4")[0] == 0


@pytest.mark.real_model
def test_the_demo_on_the_default_model(paceline: Program, smollm2_path: Path) -> None:
    """The two scenes of `make demo`, shortened: identical, and the edit drafted well."""
    status, out, _ = paceline("demo", "-m", str(smollm2_path), "-n", "48")
    assert status == 0
    assert out.count("yes (ids and logit bits)") == 2
    line = next(line for line in out.splitlines() if "tokens per step" in line)
    edit = float(line.split("│")[-2])
    assert edit > 2.0, "an edit repeats its prompt, so several tokens come with each forward"
