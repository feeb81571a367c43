"""Reading prompts: the built-in workloads, the Spec-Bench form, plain rows, and rows that are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.bench.datasets import (
    MT_BENCH_CATEGORIES,
    WORKLOADS,
    BenchPrompt,
    first_prompts,
    load_dataset,
    load_workload,
)
from paceline.errors import ConfigError


def dataset(tmp_path: Path, *rows: object) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", WORKLOADS)
def test_built_in_workloads_have_eight_to_twelve_different_prompts(name: str) -> None:
    prompts = load_workload(name)
    assert 8 <= len(prompts) <= 12
    assert len({prompt.turns for prompt in prompts}) == len({prompt.id for prompt in prompts}) == len(prompts)
    assert {prompt.workload for prompt in prompts} == {name}


def test_the_rewrite_workload_is_copy_heavy() -> None:
    """Each prompt carries the text to repeat, and most ask to leave the rest of it as it is."""
    prompts = load_workload("rewrite")
    assert all(len(prompt.turns[0]) > 500 for prompt in prompts)
    assert sum("exactly as it is" in prompt.turns[0] for prompt in prompts) >= 8


def test_an_unknown_workload_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'rewrites' is unknown \(did you mean 'rewrite'\?\)"):
        load_workload("rewrites")


def test_the_spec_bench_form_with_either_name_of_the_id(tmp_path: Path) -> None:
    row = {"category": "writing", "turns": ["First.", "Then."]}
    first, second = load_dataset(dataset(tmp_path, {"question_id": 81, **row}, {"id": "82", **row}))
    assert (first.id, second.id) == ("81", "82")
    assert (first.workload, first.category) == ("mt-bench", "writing")
    assert first.messages([]) == [{"role": "user", "content": "First."}]
    assert first.messages(["Done."]) == [
        {"role": "user", "content": "First."},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "Then."},
    ]


def test_plain_rows(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    prompt, chat = load_dataset(dataset(tmp_path, {"prompt": "One\u2028line"}, "", {"messages": messages}))
    assert prompt.messages([]) == [{"role": "user", "content": "One\u2028line"}]
    assert (prompt.id, prompt.workload) == ("1", "rows")
    assert chat.messages([]) == messages
    assert chat.id == "3", "the number of its line"


def test_the_categories_of_mt_bench_are_one_workload(tmp_path: Path) -> None:
    categories = [*MT_BENCH_CATEGORIES, "qa", "translation"]
    rows = load_dataset(dataset(tmp_path, *({"category": name, "turns": ["x"]} for name in categories)))
    assert [row.category for row in rows] == categories
    assert [row.workload for row in rows] == ["mt-bench"] * 8 + ["qa", "translation"]


def test_only_rows_of_the_spec_bench_form_are_grouped(tmp_path: Path) -> None:
    """`math` is a workload of ours too, and may be one of the user's."""
    (row,) = load_dataset(dataset(tmp_path, {"category": "math", "prompt": "x"}))
    assert (row.workload, row.part) == ("math", "")
    assert {(prompt.workload, prompt.part) for prompt in load_workload("math")} == {("math", "")}


def test_the_first_prompts_are_spread_over_categories() -> None:
    def prompt(identity: str, workload: str, part: str = "") -> BenchPrompt:
        return BenchPrompt(identity, workload, ("x",), part=part)

    prompts = [
        prompt("a", "mt-bench", "writing"),
        prompt("b", "mt-bench", "writing"),
        prompt("q", "qa"),
        prompt("c", "mt-bench", "math"),
        prompt("d", "mt-bench", "math"),
        prompt("e", "mt-bench", "stem"),
        prompt("r", "qa"),
        prompt("s", "qa"),
    ]

    def chosen(limit: int | None) -> str:
        return "".join(prompt.id for prompt in first_prompts(prompts, limit))

    assert chosen(1) == "aq"
    assert chosen(2) == "acqr"
    assert chosen(3) == "aceqrs"
    assert chosen(4) == "abceqrs"
    assert chosen(9) == chosen(None) == "abcdeqrs"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "line 2 is not JSON"),
        ([1], "line 2 is no JSON object but list"),
        ({"text": "x"}, "line 2 needs exactly one of turns, prompt or messages, but has the keys text"),
        ({"prompt": "x", "turns": ["x"]}, "but has turns and prompt"),
        ({"turns": []}, "turns must be a list with at least one text"),
        ({"turns": "x"}, "turns must be a list"),
        ({"turns": ["x", 3]}, "turns must hold text, not 3"),
        ({"prompt": " "}, "prompt must hold text"),
        ({"messages": []}, "messages must be a list"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "a message needs role"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "the last message must be the user's"),
    ],
)
def test_a_wrong_row_names_its_line(tmp_path: Path, row: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_dataset(dataset(tmp_path, {"prompt": "fine"}, row))


def test_files_that_hold_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_dataset(tmp_path / "missing.jsonl")
    with pytest.raises(ConfigError, match="holds no prompts"):
        load_dataset(dataset(tmp_path, "", " "))
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b"\xff\xfe{")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_dataset(binary)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["prompt", "turns", "messages", "role", "content", "id"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_row_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, row: object) -> None:
    path = dataset(tmp_path_factory.mktemp("fuzz"), row)
    try:
        prompts = load_dataset(path)
    except ConfigError:
        return
    assert prompts[0].messages([])[-1]["role"] == "user"
