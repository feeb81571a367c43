"""Traces are recorded with the target's runner-ups, and replayed without a model."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest
import record_traces
import replay_drafters

from support.tiny_models import write_tiny_gguf


def write_traces(path: Path) -> None:
    """A reply that copies its prompt, and one that has nothing to do with it."""
    rng = random.Random(1)
    text = [rng.randrange(300) for _ in range(80)]
    other = [rng.randrange(300, 600) for _ in range(80)]
    rows = [
        {
            "category": category,
            "mode": "greedy",
            "prompt": text,
            "reply": reply,
            "top": [[7] * 8] * len(reply),
        }
        for category, reply in (("copy", text), ("new", other), ("loop", [1, 2] * 40))
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))


def test_replays_tell_copying_from_new_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = tmp_path / "traces.jsonl"
    write_traces(traces)
    monkeypatch.setattr(sys, "argv", ["replay", str(traces), "--drafter", "ngram", "--vocab-size", "600"])
    replay_drafters.main()
    table = {
        line.split()[2]: line.split() for line in capsys.readouterr().out.splitlines()[1:] if "greedy" in line
    }
    assert float(table["copy"][4]) > 4.0
    assert float(table["new"][4]) < 1.2
    assert "loop" not in table


def test_recorded_traces_can_be_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", "llama", "q8_0", seed=3)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "Say it.", "category": "chat"}\n{"prompt": "More.", "category": "chat"}\n')
    out = tmp_path / "traces.jsonl"
    arguments = [str(model), str(out), "--dataset", str(prompts), "--per-workload", "1", "--max-tokens", "6"]
    monkeypatch.setattr(sys, "argv", ["record", *arguments])
    record_traces.main()
    traces = replay_drafters.read_traces(out, True)
    assert [(trace.category, trace.mode) for trace in traces] == [("chat", "greedy"), ("chat", "sampled")]
    for trace in traces:
        assert trace.top.shape == (len(trace.reply), 8)
    greedy = traces[0]
    assert [row[0] for row in greedy.top.tolist()] == list(greedy.reply)
    table = replay_drafters.CONSERVATIVE_COSTS
    played = replay_drafters.replay(
        replay_drafters.built_drafter("auto", 512, table), traces, replay_drafters.Rules(table)
    )
    tallies = [tally for _, tally in played]
    assert [tally.tokens for tally in tallies] == [len(trace.reply) - 1 for trace in traces]
