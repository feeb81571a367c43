"""The batch of one request whose rows follow each other equals the one that any rows are laid into.

Regimes: a token, a chain, a piece of a prompt that ends before its end or with it, long contexts.
"""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from paceline.engine.chain_batch import chain_batch
from paceline.engine.scheduler import Plan
from paceline.engine.verify import BatchBuilder
from paceline.records import Draft
from paceline.tree import TokenTree


@pytest.mark.parametrize("known", [1, 16, 17, 4_095, 4_096, 4_097, 9_000])
@pytest.mark.parametrize("num_pending", [1, 7])
@pytest.mark.parametrize("is_end", [True, False])
@pytest.mark.parametrize("num_drafted", [0, 1, 5])
def test_a_chain_is_laid_out_as_any_rows_are(
    known: int, num_pending: int, is_end: bool, num_drafted: int
) -> None:
    pending = min(known, num_pending)
    if not is_end and (num_drafted or pending == known):
        return  # nothing is drafted behind a piece that others follow, and then there must be others
    computed = known - pending - (not is_end)
    blocks = [3 * number + 1 for number in range(known // 16 + 1)]
    request = SimpleNamespace(
        computed=computed,
        pending=known - computed,
        tokens=list(range(5, 5 + known)),
        table=SimpleNamespace(blocks=blocks),
    )
    plan = Plan(cast("Plan", request), pending)  # type: ignore[arg-type]
    draft = Draft(TokenTree.chain(range(100, 100 + num_drafted)))
    builder = BatchBuilder()
    builder.add(plan, draft)
    expected, found = builder.build(), chain_batch(plan, draft)
    for field in fields(expected):
        wanted, got = getattr(expected, field.name), getattr(found, field.name)
        np.testing.assert_array_equal(got, wanted, field.name)
        assert (got.dtype, got.flags.c_contiguous) == (np.int32, True)


def test_a_tree_is_no_chain() -> None:
    assert TokenTree.chain([1, 2, 3]).is_gapless()
    assert TokenTree().is_gapless()
    assert not TokenTree((1, 2, 3), (-1, 0, 0)).is_gapless()
    assert not TokenTree((1, 2, 3), (-1, -1, 1)).is_gapless()
