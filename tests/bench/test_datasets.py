"""Reading prompts: the built-in workloads, the Spec-Bench form, plain rows, and rows that are wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.bench.datasets import (
    MT_BENCH_CATEGORIES,
    WORKLOADS,
    BenchPrompt,
    choose_prompts,
    first_prompts,
    load_dataset,
    load_workload,
    taking_turns,
)
from paceline.errors import ConfigError


def dataset(tmp_path: Path, *rows: object) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows), encoding="utf-8")
    return path


def test_all_commands_choose_their_prompts_alike(tmp_path: Path) -> None:
    path = dataset(tmp_path, {"prompt": "a"}, {"prompt": "b"}, {"prompt": "c"})
    chosen = choose_prompts(["math", "chat", "math"], path, 2)
    assert [prompt.workload for prompt in chosen] == ["math", "math", "chat", "chat", "rows", "rows"]
    turns = taking_turns(chosen)
    assert [prompt.workload for prompt in turns] == ["math", "chat", "rows"] * 2
    assert [prompt.turns for prompt in turns if prompt.workload == "rows"] == [("a",), ("b",)]
    assert {prompt.workload for prompt in choose_prompts()} == set(WORKLOADS)
    assert {prompt.workload for prompt in choose_prompts((), path)} == {"rows"}
    with pytest.raises(ConfigError, match="limit=0"):
        choose_prompts((), path, 0)


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
        ({"text": "x"}, "line 2 needs exactly one of turns, prompt, .* but has the keys text"),
        ({"prompt": "x", "turns": ["x"]}, "but has turns and prompt"),
        ({"question": "x"}, "but has the keys question"),
        ({"question": " ", "answer": "4"}, "question must hold text"),
        ({"conversations": "x"}, "conversations must be a list"),
        ({"conversations": [{"from": "human"}]}, "conversations needs from and value"),
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
    with pytest.raises(ConfigError, match=r"line 1 is not UTF-8 \(byte 0xff\)"):
        load_dataset(binary)


def test_the_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    """The message held a byte offset into the whole file, which no editor leads to."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"prompt": "fine"}\n\n{"prompt": "caf\xe9"}\n')
    with pytest.raises(ConfigError, match=r"rows.jsonl, line 3 is not UTF-8 \(byte 0xe9\): save the file"):
        load_dataset(path)


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "x"}\n')
    assert load_dataset(path)[0].turns == ("x",)


HUMAN_EVAL = {
    "task_id": "HumanEval/7",
    "prompt": '\n\ndef add(a, b):\n    """Add."""\n',
    "entry_point": "add",
    "canonical_solution": "    return a + b\n",
    "test": "def check(candidate): ...",
}


@pytest.mark.parametrize("compressed", [False, True])
def test_the_human_eval_form(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / ("HumanEval.jsonl.gz" if compressed else "HumanEval.jsonl")
    data = json.dumps(HUMAN_EVAL).encode() + b"\n"
    path.write_bytes(gzip.compress(data) if compressed else data)
    (prompt,) = load_dataset(path)
    assert (prompt.id, prompt.workload) == ("HumanEval/7", "humaneval")
    (turn,) = prompt.turns
    assert turn.startswith("Complete this Python function")
    assert turn.endswith('```python\ndef add(a, b):\n    """Add."""\n```')
    assert "return a + b" not in turn, "the solution is not told"


def test_gzip_is_known_by_its_bytes_and_half_a_file_is_an_error(tmp_path: Path) -> None:
    data = gzip.compress(b'{"prompt": "x"}\n')
    path = tmp_path / "rows.jsonl"
    path.write_bytes(data)
    (prompt,) = load_dataset(path)
    assert prompt.workload == "rows"
    named = tmp_path / "rows.jsonl.gz"
    named.write_bytes(data)
    assert load_dataset(named)[0].workload == "rows"
    named.write_bytes(data[:-9])
    with pytest.raises(ConfigError, match=r"rows.jsonl.gz cannot be read"):
        load_dataset(named)
    named.write_bytes(data[:12] + b"\xff" * 8)
    with pytest.raises(ConfigError, match=r"rows.jsonl.gz cannot be read"):
        load_dataset(named)


def test_the_gsm8k_form(tmp_path: Path) -> None:
    row = {"question": "Two and two?", "answer": "2+2 = <<2+2=4>>4\n#### 4"}
    (prompt,) = load_dataset(dataset(tmp_path, row))
    assert (prompt.id, prompt.workload, prompt.turns) == ("1", "gsm8k", ("Two and two?",))


def shared(*said: tuple[str, str]) -> dict[str, object]:
    return {"id": "talk", "conversations": [{"from": who, "value": text} for who, text in said]}


def test_the_sharegpt_form_asks_what_people_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The file of the web is one JSON list, and holds talks that are empty or begin with a reply."""
    path = tmp_path / "sharegpt.json"
    talks = [
        shared(("system", "Be brief."), ("human", "One?"), ("gpt", "1"), ("human", "Two?"), ("bing", "2")),
        shared(("gpt", "…and so on"), ("human", "Thanks")),
        shared(),
    ]
    path.write_text(json.dumps(talks, indent=1), encoding="utf-8")
    (prompt,) = load_dataset(path)
    assert (prompt.id, prompt.workload, prompt.turns) == ("talk", "sharegpt", ("One?", "Two?"))
    assert prompt.opening == (("system", "Be brief."),)
    assert "2 of 3 conversations have no user's turn at their start" in caplog.text
    assert load_dataset(dataset(tmp_path, *talks)) == [prompt], "as lines, too"
    with pytest.raises(ConfigError, match="holds no prompts"):
        load_dataset(dataset(tmp_path, talks[1]))


def test_the_mt_bench_form_with_its_references(tmp_path: Path) -> None:
    row = {"question_id": 111, "category": "math", "turns": ["Area?", "And twice that?"], "reference": ["3"]}
    (prompt,) = load_dataset(dataset(tmp_path, row))
    assert (prompt.id, prompt.workload, prompt.part) == ("111", "mt-bench", "math")
    assert len(prompt.turns) == 2


def test_a_list_names_its_entries_and_its_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[{"prompt": "x"}, {"text": "y"}]')
    with pytest.raises(ConfigError, match=r"rows.json, entry 2 needs exactly one of"):
        load_dataset(path)
    path.write_text('[\n {"prompt": "x"},\n {"prompt": y}\n]')
    with pytest.raises(ConfigError, match=r"rows.json, line 3 is not JSON"):
        load_dataset(path)
    path.write_text("[]")
    with pytest.raises(ConfigError, match="holds no prompts"):
        load_dataset(path)
    path.write_text('[1]\n{"prompt": "x"}\n')
    with pytest.raises(ConfigError, match="line 1 is no JSON object but list"):
        load_dataset(path)


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


@settings(deadline=None)  # the first example may wait for a busy disk
@given(JSON)
def test_any_json_row_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, row: object) -> None:
    path = dataset(tmp_path_factory.mktemp("fuzz"), row)
    try:
        prompts = load_dataset(path)
    except ConfigError:
        return
    assert prompts[0].messages([])[-1]["role"] == "user"
