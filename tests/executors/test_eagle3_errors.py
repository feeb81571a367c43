"""Heads that do not fit and malformed drafts end in clear errors, never in a crash."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.errors import ConfigError, ModelFileError
from paceline.executors.eagle3 import DraftShape, Eagle3Executor
from support.eagle3_executors import files_of, load_head, load_target, pairs_batch, random_pairs
from support.eagle3_heads import tiny_head
from support.native_batches import int32

TINY = tiny_head("plain")
SHAPE = DraftShape(max_nodes=4, max_depth=3, width=2)


@pytest.fixture
def head(tmp_path: Path) -> Eagle3Executor:
    return load_head(TINY, load_target(tmp_path), num_blocks=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 96}, "wrong shape"),
        ({"num_states": 2}, "fc is missing or has the wrong shape"),
        ({"draft_vocab_size": 80}, "output is missing or has the wrong shape"),
        ({"vocab_size": 90}, "wrong shape"),
        ({"head_dim": 12}, "multiples of 32"),
        ({"target_hidden_size": 40}, "multiple of 32"),
        ({"layer_windows": (0, 0)}, "one window per layer"),
    ],
)
def test_heads_whose_tensors_do_not_fit_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    files = files_of(TINY)
    with pytest.raises(ModelFileError, match=f"'tiny head' cannot be used.*{message}"):
        Eagle3Executor.load(
            replace(files, spec=replace(files.spec, **change)), load_target(tmp_path), num_blocks=2
        )


@pytest.mark.parametrize("ids", [[-1], [10**6]])
def test_draft_vocabularies_past_the_targets_are_refused(tmp_path: Path, ids: list[int]) -> None:
    files = files_of(TINY)
    wrong = files.draft_to_target.copy()
    wrong[-1] = ids[0]
    with pytest.raises(ModelFileError, match="out of range"):
        Eagle3Executor.load(replace(files, draft_to_target=wrong), load_target(tmp_path), num_blocks=2)


@pytest.mark.parametrize(
    "change",
    [
        {"max_nodes": 0},
        {"max_depth": 0},
        {"width": 0},
        {"width": 1000},
        {"min_log_prob": np.nan},
        {"min_parent_log_prob": np.nan},
    ],
)
def test_shapes_out_of_range_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        replace(SHAPE, **change)


def test_nan_weights_are_an_error_and_no_draft(tmp_path: Path) -> None:
    broken = replace(TINY, weights=TINY.weights | {"output_norm.weight": np.full(64, np.nan, np.float32)})
    head = load_head(broken, load_target(tmp_path))
    tokens, states = random_pairs(TINY, 3)
    with pytest.raises(ValueError, match="NaN"):
        head.draft(pairs_batch(tokens[1:], 0, (0, 1)), states, SHAPE)


def test_a_block_table_without_room_for_the_draft_is_refused(head: Eagle3Executor) -> None:
    tokens, states = random_pairs(TINY, 13)
    batch = pairs_batch(tokens[1:], 0, (0,))
    assert len(head.draft(batch, states, replace(SHAPE, max_depth=2))) == 4
    with pytest.raises(ValueError, match="needs slots up to 17, the block table has 16"):
        head.draft(batch, states, SHAPE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": int32([1, 2, 10**6])}, "token id out of range"),
        ({"blocks": int32([0, 99])}, "block id out of range"),
        ({"slots": int32([0, 1, 3])}, "chain of one sequence"),
        ({"tail_offsets": int32([0, 0, 0, 1]), "tails": int32([2])}, "chain of one sequence"),
        ({"block_offsets": int32([0, 1, 2])}, "chain of one sequence"),
        ({"slots": int32([0, 1])}, "differ in length"),
    ],
)
def test_malformed_batches_are_refused(head: Eagle3Executor, change: dict[str, Any], message: str) -> None:
    tokens, states = random_pairs(TINY, 3)
    batch = pairs_batch(tokens[1:], 0, (0, 1))
    good = head.draft(batch, states, SHAPE)
    with pytest.raises(ValueError, match=message):
        head.draft(replace(batch, **change), states, SHAPE)
    assert head.draft(batch, states, SHAPE).log_probs.tobytes() == good.log_probs.tobytes()


def test_arrays_of_another_size_are_refused(head: Eagle3Executor) -> None:
    tokens, states = random_pairs(TINY, 3)
    batch = pairs_batch(tokens[1:], 0, (0, 1))
    for wrong in (states[:2], np.ascontiguousarray(states[:, :64])):
        with pytest.raises(ValueError, match="states array has the wrong shape"):
            head.draft(batch, wrong, SHAPE)
        with pytest.raises(ValueError, match="states array has the wrong shape"):
            head.catch_up(batch, wrong)
    with pytest.raises(ValueError, match="projected array has the wrong shape"):
        head.forward(batch, states)


def test_a_head_is_no_model_and_a_model_no_head(tmp_path: Path, head: Eagle3Executor) -> None:
    batch = pairs_batch([1, 2], 0, (0,))
    arrays = [getattr(batch, name) for name in type(batch).__dataclass_fields__]
    with pytest.raises(ValueError, match="the rows of a head are pairs"):
        head.decoder.forward(*arrays, np.empty((2, 96), np.float32))
    target = load_target(tmp_path)
    with pytest.raises(ValueError, match="the model is no head"):
        target.decoder.project(np.empty((2, 192), np.float32), np.empty((2, 64), np.float32))
