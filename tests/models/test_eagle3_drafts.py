"""From a head's files to its drafts: every format × variant drafts what the float64 reference drafts.

The loader's tests compare tensors and the executor's tests take tensors from memory; this one would catch a
convention both sides read differently, such as the permuted q and k rows of GGUF files.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paceline.executors.eagle3 import DraftShape, Eagle3Executor
from paceline.models.eagle3 import open_eagle3
from support.eagle3_executors import load_target, pairs_batch, random_pairs, reference_of
from support.eagle3_heads import FORMAT_VARIANTS, Format, tiny_head, write_head

CASES = [(form, variant) for form, variants in FORMAT_VARIANTS.items() for variant in variants]
BLOCKS = tuple(range(8))
SHAPES = (DraftShape(max_nodes=5, max_depth=5), DraftShape(max_nodes=12, max_depth=4, width=3))


@pytest.mark.parametrize(("form", "variant"), CASES)
def test_drafts_of_an_opened_head_equal_the_reference(tmp_path: Path, form: Format, variant: str) -> None:
    head = tiny_head(variant, **({"state_layers": (1, 3, 5, 8)} if variant == "four_states" else {}))
    target = load_target(tmp_path)
    spec = replace(target.spec, num_layers=8, layer_windows=(0,) * 8, layer_ropes=(0,) * 8)
    files = open_eagle3(write_head(tmp_path / "head", head, form), spec)
    with closing(files.source):
        executor = Eagle3Executor.load(files, target, num_blocks=len(BLOCKS), cache_type="float32")
    tokens, states = random_pairs(head, 40)
    for shape in SHAPES:
        got = executor.draft(pairs_batch(tokens[1:], 0, BLOCKS, 1), states, shape)
        expected = reference_of(head).draft(
            tokens, states, width=shape.width, max_depth=shape.max_depth, max_nodes=shape.max_nodes
        )
        assert tuple(got.tokens.tolist()) == expected.tokens
        assert tuple(got.parents.tolist()) == expected.parents
        assert np.abs(got.log_probs - np.array(expected.log_probs)).max() <= 2e-4
