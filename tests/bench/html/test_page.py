"""The report page without a browser: what is read, what is refused, what is written into it."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.bench.html.page import figures_of, render_page
from paceline.bench.html.source import read_sources
from paceline.bench.html.svg import Scale, round_up, ticks
from paceline.cli import main as program
from paceline.errors import ConfigError
from support import result_files


def figures(tmp_path: Path, **files: dict[str, Any]) -> dict[str, Any]:
    return {f.key: f for f in figures_of(read_sources(result_files.write(tmp_path, **files)))}


def test_every_mix_of_files_makes_a_page(tmp_path: Path) -> None:
    makers = {
        "offline": result_files.offline,
        "old": result_files.old_offline,
        "load": result_files.load,
        "rows": result_files.old_profile,
        "profile": result_files.stored_profile,
    }
    for name, make in makers.items():
        text = render_page(result_files.write(tmp_path, **{name: make()}))
        assert text.count("<section") == 8
        assert "nan" not in re.sub(r"[a-z]nan|nan[a-z]", "", text.lower())
    everything = {name: make() for name, make in makers.items()}
    assert "p.missing" not in render_page(result_files.write(tmp_path, **everything))


def test_what_is_missing_is_said_with_the_way_to_get_it(tmp_path: Path) -> None:
    found = figures(tmp_path, rows=result_files.old_profile())
    assert found["cost"].charts
    assert found["cost"].missing == [
        "rows.json: no offline run at batch 1 tells acceptance, so there is no plan to show."
    ]
    for key in ("speedup", "acceptance", "latency", "throughput", "predicted"):
        assert not found[key].charts
        assert "paceline " in found[key].missing[0], key


def test_sizes_that_were_not_measured_are_named(tmp_path: Path) -> None:
    found = figures(tmp_path, offline=result_files.offline((1, 8)))
    assert found["latency"].missing == ["Nothing was measured at batch or concurrency 32."]
    assert not figures(tmp_path, offline=result_files.offline((1, 8)), load=result_files.load())[
        "latency"
    ].missing


def test_the_plan_is_that_of_the_planner(tmp_path: Path) -> None:
    (cost,) = [figures(tmp_path, offline=result_files.offline())["cost"]]
    plan = next(table for table in cost.tables if table.caption.startswith("The plan"))
    assert [row[0] for row in plan.rows] == ["ngram", "eagle3"]
    # ngram's drafts are nearly free here: all three known depths are worth a row of 0.02 each.
    assert plan.rows[0][1:3] == ["3", "4"]
    assert float(plan.rows[1][5]) > 1.3


@pytest.mark.parametrize(
    ("profile", "run", "fits"),
    [
        ("Tiny", "Tiny (tiny.gguf)", True),
        ("/root/models/tiny-1.gguf", "Tiny llama (tiny-1.gguf)", True),
        ("smollm2-135m", "Smollm2 135M (SmolLM2-135M-Instruct.Q4_1.gguf)", True),
        ("gemma3-270m", "Gemma (gemma-3-270m.Q4_K_M.gguf)", True),
        ("gemma3-270m", "Tiny (tiny.gguf)", False),
    ],
)
def test_a_plan_is_made_from_runs_of_the_same_model_only(
    tmp_path: Path, profile: str, run: str, fits: bool
) -> None:
    stored = result_files.stored_profile() | {"model_name": profile}
    runs = result_files.old_offline()
    runs["runs"] = [each | {"model": run} for each in runs["runs"]]
    cost = figures(tmp_path, stored=stored, runs=runs)["cost"]
    assert any(table.caption.startswith("The plan") for table in cost.tables) == fits


def test_a_curve_that_falls_by_noise_is_read_as_flat(tmp_path: Path) -> None:
    (profile,) = read_sources(result_files.write(tmp_path, rows=result_files.old_profile())).profiles
    assert profile.table.r(5) == profile.table.r(4)
    assert profile.table.row_seconds == 0.004


def test_old_spreads_become_spreads_of_the_speedup(tmp_path: Path) -> None:
    speedup = figures(tmp_path, old=result_files.old_offline())["speedup"]
    name, value, low, high = speedup.tables[0].rows[0][:4]
    assert name == "chat, ngram"
    assert float(low) < float(value) < float(high)


def test_texts_from_files_are_never_markup(tmp_path: Path) -> None:
    """A category or a server's message may hold anything; it is shown, not obeyed."""
    evil = '<script>alert("1")</script>'
    plain = result_files.offline((1,))
    plain["runs"] = [
        run | {"workload": evil, "drafter": f"{run['drafter']}&<i>"} for run in plain["runs"][:4]
    ]
    load = result_files.load()
    load["server"]["model"] = evil
    load["notes"] = [evil]
    text = render_page(result_files.write(tmp_path, offline=plain, load=load), title=evil)
    assert "<script" not in text
    assert "<i>" not in text
    assert "<b>" not in text
    assert "&lt;script&gt;" in text


def test_the_page_names_no_address_to_fetch_from(tmp_path: Path) -> None:
    text = render_page(result_files.write(tmp_path, offline=result_files.offline(), load=result_files.load()))
    assert not re.search(r"(src|href|url\()\s*=?\s*[\"']?https?:", text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is not JSON"),
        ('{"runs": [', "is not JSON"),
        ("[1, 2]", "holds no JSON object"),
        ('{"hello": 1}', "holds no figures of paceline bench"),
        ('{"runs": [{"drafter": "auto"}]}', "is damaged or from another version"),
        ('{"kind": "load", "points": 7, "server": {}}', "is damaged or from another version"),
        ('{"table": {"verify": []}}', "cost table"),
        ('{"ms": {"2": 1.0}, "r": {"2": 1.0}}', "no forward with one row"),
    ],
)
def test_files_that_hold_no_figures_are_named(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=says) as caught:
        render_page([path])
    assert "bad.json" in str(caught.value) or "cost table" in says


def test_a_run_of_no_prompts_is_an_empty_offline_file(tmp_path: Path) -> None:
    assert figures(tmp_path, empty={"kind": "offline", "runs": []})["speedup"].missing


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 10.0, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]),
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 0.037, [0.0, 0.01, 0.02, 0.03]),
        (3.0, 3.0, [3.0]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_axes_end_on_a_tick_and_scales_hit_both_ends() -> None:
    assert round_up(0.93) == pytest.approx(1.0)
    assert round_up(1234.0) == pytest.approx(1500.0)
    assert round_up(0.0) == 1.0
    scale = Scale(1.0, 100.0, 0.0, 50.0, log=True)
    assert [scale(value) for value in (1.0, 10.0, 100.0)] == pytest.approx([0.0, 25.0, 50.0])


def test_the_command_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = result_files.write(tmp_path, old=result_files.old_offline(), load=result_files.load())
    out = tmp_path / "out" / "report.html"
    arguments = ["paceline", "bench", "report", *map(str, files), "--html", str(out), "--title", "Night run"]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(SystemExit) as end:
        program.main()
    assert not end.value.code
    assert f"written to {out}" in capsys.readouterr().out.replace("\n", "")
    assert "<title>Night run</title>" in out.read_text(encoding="utf-8")


def test_the_command_leaves_no_page_when_a_file_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({"x": 1}), encoding="utf-8")
    out = tmp_path / "report.html"
    monkeypatch.setattr(sys, "argv", ["paceline", "bench", "report", str(bad), "--html", str(out)])
    with pytest.raises(SystemExit) as end:
        program.main()
    assert end.value.code == 2
    assert "bad.json holds no figures" in capsys.readouterr().err
    assert not out.exists()
