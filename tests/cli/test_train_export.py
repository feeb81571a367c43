"""``paceline train export``: a head's folder becomes one file and a card; mistakes are one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.cli import main as program
from paceline.models.eagle3_export import export_speculators, read_provenance
from paceline.models.eagle3_gguf import open_gguf_head
from paceline.models.ggml_types import Q4_1
from support.eagle3_heads import tiny_head, write_head

SERVED = {"source": "all", "temperature": 0.0, "num_replies": 4, "tokens_per_step": 2.31,
          "varied_tokens_per_step": 2.2, "conditional_acceptance_at": [0.7, 0.6]}  # fmt: skip
FACTS: dict[str, Any] = {
    "target": "smollm2-135m",
    "target_sha256": "ab" * 32,
    "data": {"p.jsonl": "cd" * 32},
    "command": "paceline train eagle3",
    "commit": "0123456789ab",
    "created": "2026-01-01T00:00:00+00:00",
    "versions": {"numpy": "2.0"},
    "seed": 0,
    "stages": {
        "capture": {"num_response_tokens": 9, "num_sequences": 3, "loops": {"num_cut": 0, "num_dropped": 0}},
        "vocabulary": {"coverage": 0.99, "coverage_at": [[96, 0.99]]},
        "fit": {"num_steps": 5, "best_step": 5, "validation": {"tokens_per_step": 2.4}},
        "evaluate": {"served": [SERVED]},
        "parity": {"drafts": {"agreement_at": [1.0]}},
    },
}


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["paceline", "train", "export", *map(str, arguments)])
    try:
        program.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    head = tiny_head(state_layers=(1, 3, 5))
    verifier = {"name_or_path": "m", "architectures": ["LlamaForCausalLM"]}
    return export_speculators(
        tmp_path / "head", head.spec, head.weights, head.draft_to_target.astype(np.int32), verifier, FACTS
    )


def test_a_folder_becomes_a_file_with_its_card(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "heads" / "tiny" / "head.gguf"
    card = out.with_name("README.md")
    assert run(monkeypatch, "--head", folder, "--quant", "q4_1", "--out", out, "--card", card) == 0
    assert capsys.readouterr().out == f"{out} ({out.stat().st_size / 1e6:.1f} MB)\n"
    assert read_provenance(out.parent) == FACTS
    files = open_gguf_head(out)
    files.source.close()
    assert files.source.tensors["fc.weight"].ggml_type == Q4_1.number
    text = card.read_text()
    for part in (
        "Format: GGUF, matrices q4_1",
        "| all | 0 | 4 | 2.31 | 2.20 | 0.70 0.60 |",
        FACTS["target_sha256"],
    ):
        assert part in text


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--quant", "q8"], "--quant 'q8' (did you mean 'q8_0'?)"),
        (["--layers", "1,b"], "--layers '1,b': give numbers"),
        (["--layers", "1,2,3"], "the head states (1, 3, 5)"),
        (["--out", "head"], "name it *.gguf"),
        (["--head", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_one_line(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    extra: list[str],
    message: str,
) -> None:
    assert run(monkeypatch, "--head", folder, "--out", tmp_path / "h.gguf", *extra) == 2
    error = capsys.readouterr().err
    assert error.startswith("paceline: ") and error.count("\n") == 1
    assert message in error
    assert not list(tmp_path.glob("*.gguf*"))


def test_heads_made_elsewhere_have_no_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_head(tmp_path / "theirs", tiny_head(), "safeailab")
    out, card = tmp_path / "h.gguf", tmp_path / "README.md"
    assert run(monkeypatch, "--head", folder, "--out", out, "--layers", "2,4,5", "--card", card) == 2
    assert "does not say how it was trained; leave --card out" in capsys.readouterr().err
    assert not out.exists() and not card.exists()
    assert run(monkeypatch, "--head", folder, "--out", out, "--layers", "2,4,5") == 0
    assert json.dumps(read_provenance(out)) == "{}"
