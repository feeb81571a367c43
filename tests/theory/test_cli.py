"""``paceline theory``: what it prints and writes, and how it refuses."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.theory import app, parse_lengths
from paceline.errors import ConfigError

CURVE = {"r": {"1": 1.0, "2": 1.53, "4": 2.31, "8": 3.97}, "ms": {"1": 10.3}}


def run(*arguments: str) -> str:
    """Run the command, let a refusal through as the exception it is, and return what was printed."""
    result = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(app, list(arguments))
    if result.exception is not None:
        raise result.exception
    return result.output


def refusal(*arguments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        run(*arguments)
    return str(caught.value)


def cells(output: str, first: str) -> list[list[str]]:
    """Return the rows of the printed tables whose first cell is ``first``."""
    return [
        row for row in (re.split(r"\s+", line.strip()) for line in output.splitlines()) if row[0] == first
    ]


def test_table() -> None:
    tokens, gains = cells(run("table", "-a", "0.75", "-k", "0-2,4", "-c", "0.1"), "0.75")
    assert tokens == ["0.75", "1.00", "1.75", "2.31", "3.05"]
    assert gains == ["0.75", "1.00", "1.59", "1.93", "2.18*", "5"]


def test_table_with_a_measured_curve(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(CURVE))
    output = run("table", "-a", "0.75,0.3", "-k", "1,4", "-c", "0.05", "--cost-curve", str(path))
    assert cells(output, "0.3")[1] == ["0.3", "0.82*", "0.49", "0"]
    assert cells(output, "break-even") == [["break-even", "0.58", "0.73"]]
    assert cells(run("table", "-k", "2", "-c", "3"), "break-even") == [["break-even", "never"]]
    assert "was measured up to 8: give --lengths 1-7" in refusal(
        "table", "-k", "9", "--cost-curve", str(path)
    )


def test_every_table_fits_eighty_columns() -> None:
    for output in (run("table"), run("sweep", "-n", "300", "--vocab", "8")):
        assert "…" not in output
        assert max(map(len, output.splitlines())) <= 80


def test_sweep_prints_and_writes_the_same(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    arguments = ["sweep", "-n", "500", "-k", "2,4", "-a", "0.6,0.9", "--vocab", "16", "--json", str(path)]
    output = run(*arguments)
    records = json.loads(path.read_text())
    assert [(record["alignment"], record["K"]) for record in records] == [
        (0.6, 2),
        (0.6, 4),
        (0.9, 2),
        (0.9, 4),
    ]
    for record in records:
        assert record["num_tokens"] == record["num_accepted_tokens"] + record["target_calls"]
        assert record["alpha"] == pytest.approx(record["alignment"])
        assert record["distribution"]["speculative"]["p_value"] > 1e-6
    assert cells(output, "0.90")[0][:4] == [
        "0.90",
        "2",
        str(records[2]["target_calls"]),
        str(records[2]["draft_calls"]),
    ]
    assert run(*arguments) == output  # the default seed repeats the run
    assert run(*arguments, "--seed", "1") != output


@pytest.mark.parametrize("rule", ["block", "coupled"])
def test_sweep_knows_every_rule_and_markov_laws(rule: str) -> None:
    output = run("sweep", "-n", "200", "-k", "2", "-a", "0.8", "--vocab", "8", "--markov", "--rule", rule)
    assert f"rule: {rule}" in output


def test_a_sweep_of_one_step_writes_valid_json(tmp_path: Path) -> None:
    """A single step has no spread; `Infinity` in its place made files that other readers refuse."""
    path = tmp_path / "one.json"
    run("sweep", "-n", "1", "-k", "1", "-a", "0.9", "--vocab", "8", "--json", str(path))
    assert "Infinity" not in path.read_text()
    assert json.loads(path.read_text())[0]["tokens_per_call_noise"] is None


@pytest.mark.parametrize("figure", ["all", "tokens", "speedup", "break-even"])
@pytest.mark.parametrize(
    ("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PNG", b"\x89PNG")]
)
def test_plot_writes_the_format_of_the_suffix(tmp_path: Path, figure: str, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"figure{suffix}"
    output = run("plot", str(path), "--figure", figure, "--longest", "4", "-c", "0.1,3")
    assert "wrote" in output
    assert path.read_bytes().startswith(magic)


def test_the_figures_show_what_they_should(tmp_path: Path) -> None:
    from paceline.cli.theory_plots import PANELS, PlotSettings
    from paceline.theory import CostCurve, expected_tokens, speedup

    figure_module = pytest.importorskip("matplotlib.figure")
    settings = PlotSettings([0.5, 0.75], [0.0, 0.1, 5.0], 0.75, 4, CostCurve.flat())
    lines = {}
    for name, panel in PANELS.items():
        axes = figure_module.Figure().add_subplot()
        panel(axes, settings)
        lines[name] = {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}
    assert lines["tokens"]["α = 0.75"] == [expected_tokens(0.75, k) for k in range(5)]
    assert lines["speedup"]["c = 0.1"] == [speedup(0.75, k, 0.1) for k in range(5)]
    assert lines["break-even"]["c = 0"] == [0.0] * 4
    assert lines["break-even"]["c = 5 (never pays)"] == []


def test_plot_without_matplotlib_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = tmp_path / "figure.png"
    assert refusal("plot", str(path)) == (
        'plots need matplotlib; install it with: pip install "paceline[plot]"'
    )
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table", "-a", "0.5,x"], "--alpha is '0.5,x'; give numbers such as"),
        (["table", "-a", "1.5"], "alpha is 1.5; give a probability between 0 and 1"),
        (["table", "-a", "nan"], "alpha is nan"),
        (["table", "-k", "8-2"], "--lengths is '8-2'; give lengths such as 2,4,6 or 1-8"),
        (["table", "-k", "-1"], "--lengths is"),
        (["table", "-c", "-1"], "c is -1.0; give a finite cost of at least 0"),
        (["sweep", "--rule", "blok"], "rule is 'blok' (did you mean 'block'?)"),
        (["sweep", "--vocab", "1"], "vocab is 1; give a whole number of at least 2"),
        (["sweep", "-n", "0"], "num_tokens is 0"),
        (["sweep", "--vocab", "2", "-a", "0.001"], "alpha_hint is 0.001, but no draft overlaps"),
        (["plot", "x.pdf"], "end its name in .png or .svg"),
        (["plot", "x.png", "--figure", "speed"], "figure is 'speed' (did you mean 'speedup'?)"),
        (["plot", "x.png", "--longest", "0"], "longest is 0"),
        (["plot", "x.png", "-c", "-0.1"], "draft cost is -0.1"),
        (["plot", "no/such/folder/x.png"], "cannot be written (No such file or directory)"),
    ],
)
def test_refusals(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refusal(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_no_cost_curve(tmp_path: Path) -> None:
    path = tmp_path / "curve.json"
    assert "cannot be read (No such file or directory)" in refusal("table", "--cost-curve", str(path))
    for text, message in [
        ("{", "is no JSON"),
        ("[1]", 'has no table "r"'),
        ('{"r": {"2": 1}}', "start at 1"),
    ]:
        path.write_text(text)
        assert message in refusal("table", "--cost-curve", str(path))
    path.write_text(json.dumps(CURVE))
    assert "use --longest 7" in refusal("plot", str(tmp_path / "x.png"), "--cost-curve", str(path))
    assert "cannot be written" in refusal(
        "sweep", "-n", "10", "--vocab", "8", "--json", str(tmp_path / "no" / "f")
    )


def test_lengths() -> None:
    assert parse_lengths("2,4-6,9") == [2, 4, 5, 6, 9]
    assert parse_lengths("0") == [0]
