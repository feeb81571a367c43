"""The cost table: what it reads off, what it refuses, and its JSON."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import ConfigError
from paceline.theory.cost_table import MEASURED_ROWS, CostTable, DraftCost

TABLE = CostTable(
    ((1, 1.0), (4, 1.3), (8, 2.1), (16, 2.5)),
    row_seconds=0.005,
    step_seconds=0.001,
    draft_costs={"eagle3": DraftCost(0.02, 0.03, 0.001), "draft_model:small": DraftCost(0.3, 0.2)},
    per_sequence_token=1e-4,
    per_row_token=1e-5,
)


def test_the_curve_is_read_between_its_points_and_goes_on_behind_them() -> None:
    assert [TABLE.r(m) for m in (0, 1, 4, 16)] == [0.0, 1.0, 1.3, 2.5]
    assert TABLE.r(6) == pytest.approx(1.7)
    assert TABLE.r(26) == pytest.approx(2.5 + 10 * 1.5 / 15)
    assert CostTable(((1, 1.0),), 0.01).r(3) == 3.0


@given(st.lists(st.floats(0, 2), min_size=len(MEASURED_ROWS) - 1, max_size=len(MEASURED_ROWS) - 1))
def test_the_curve_never_falls(steps: list[float]) -> None:
    costs = [1.0]
    for step in steps:
        costs.append(costs[-1] + step)
    table = CostTable(tuple(zip(MEASURED_ROWS, costs, strict=True)), 0.01)
    read = [table.r(m) for m in range(80)]
    assert all(low <= high + 1e-9 for low, high in itertools.pairwise(read))
    assert [table.r(m) for m in MEASURED_ROWS] == costs


def test_drafters_are_found_by_name_and_by_kind() -> None:
    assert TABLE.draft("eagle3", levels=3, nodes=5) == pytest.approx(0.02 + 0.09 + 0.005)
    assert TABLE.draft("eagle3:smollm2-135m", 1, 1) == TABLE.draft("eagle3", 1, 1)
    assert TABLE.draft("none", 0, 0) == 0.0
    assert [TABLE.knows(name) for name in ("none", "eagle3:x", "draft_model:other", "ngram")] == [
        True,
        True,
        False,
        False,
    ]
    with pytest.raises(ConfigError, match=r"'draft_model:smal' was not measured \(did you mean"):
        TABLE.draft("draft_model:smal", 1, 1)


def test_a_long_context_costs_what_was_measured_and_a_short_one_nothing_less() -> None:
    assert TABLE.row_surcharge(1128) == pytest.approx(0.01)
    assert TABLE.sequence_surcharge(1128) == pytest.approx(0.1)
    assert TABLE.row_surcharge(10) == TABLE.sequence_surcharge(128) == 0.0


def test_the_fixed_part_of_a_step_flattens_the_curve() -> None:
    assert TABLE.step_cost == pytest.approx(0.2)
    ratios = TABLE.step_ratios(4)
    assert ratios[0] == 1.0
    assert ratios[3] == pytest.approx(1.5 / 1.2)


def test_json_gives_the_same_table_back() -> None:
    assert CostTable.from_json(json.loads(json.dumps(TABLE.to_json()))) == TABLE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verify": []}, "verify"),
        ({"verify": [[2, 1.0]]}, "the first is"),
        ({"verify": [[1, 1.5]]}, "the first is"),
        ({"verify": [[1, 1.0], [2, 0.9]]}, r"r\(2\)=0.9"),
        ({"verify": [[1, 1.0], [3, 1.2], [2, 1.3]]}, "rows rise"),
        ({"verify": [[1, 1.0], [2, float("nan")]]}, r"r\(2\)=nan"),
        ({"verify": [[1, 1.0], [2.5, 1.1]]}, "pairs"),
        ({"verify": [1, 2]}, "no cost table"),
        ({"row_seconds": 0}, "a forward takes time"),
        ({"row_seconds": "fast"}, "row_seconds='fast'"),
        ({"step_seconds": -1}, "step_seconds=-1"),
        ({"per_row_token": float("inf")}, "per_row_token=inf"),
        ({"draft_costs": {"ngram": {"fixed": -1}}}, "fixed=-1"),
        ({"draft_costs": {"ngram": {"speed": 1}}}, "no cost table"),
        ({"draft_costs": ["ngram"]}, "no cost table"),
        ({"colour": "red"}, "unknown: colour"),
    ],
)
def test_what_is_no_table_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CostTable.from_json({**TABLE.to_json(), **change})


@pytest.mark.parametrize("plain", [None, [], "table", {}])
def test_other_json_is_no_table(plain: object) -> None:
    with pytest.raises(ConfigError, match="a cost table"):
        CostTable.from_json(plain)


def test_a_table_cannot_be_changed_from_outside() -> None:
    costs = {"ngram": DraftCost(0.001)}
    table = CostTable(((1, 1.0),), 0.01, draft_costs=costs)
    costs["suffix"] = DraftCost(0.1)
    assert not table.knows("suffix")
