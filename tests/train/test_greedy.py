"""The torch head's greedy chains against a float64 reference that shares no code with them; parity's sums."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from paceline.errors import DrafterError
from paceline.train.captured import CapturedSequence
from paceline.train.greedy import GreedyChains, leading_matches
from paceline.train.head import Eagle3Head
from paceline.train.parity import DraftParity, StateParity, check_states, require_parity
from paceline.train.ttt import Rotary
from support.eagle3_heads import tiny_head
from support.eagle3_reference import Eagle3Reference
from support.state_executor import StateExecutor, expected_states

DEPTH = 4


@pytest.mark.parametrize("variant", ["plain", "layers", "four_states"])
def test_chains_are_those_of_the_reference(variant: str) -> None:
    made = tiny_head(variant, seed=1)
    rng = np.random.default_rng(2)
    embedding = rng.standard_normal((made.spec.vocab_size, made.spec.hidden_size)).astype(np.float32)
    tokens = rng.integers(0, made.spec.vocab_size, 14)
    states = rng.standard_normal((13, made.spec.num_states * made.spec.target_hidden_size)).astype(np.float32)
    reference = Eagle3Reference(made.spec, made.weights, made.draft_to_target, target_embedding=embedding)
    head = Eagle3Head(made.spec)
    head.load_tensors(made.weights)
    chains = GreedyChains(
        head.cast(torch.float32),
        torch.from_numpy(embedding),
        torch.from_numpy(made.draft_to_target.astype(np.int64)),
        Rotary(made.spec.rope.inverse_frequencies, 32),
        torch.from_numpy(states),
        torch.from_numpy(tokens),
    )
    for pair in (0, 5, 12):
        drafted, _ = chains.draft(pair, DEPTH)
        expected = reference.draft(
            tokens[: pair + 2].tolist(),
            states[: pair + 1],
            width=1,
            max_depth=DEPTH,
            max_nodes=DEPTH,
            min_log_prob=-math.inf,
        )
        assert drafted == list(expected.tokens), f"behind pair {pair}"
    again, _ = chains.draft(0, DEPTH)
    assert again == chains.draft(0, DEPTH)[0], "a draft leaves nothing behind"


def test_leading_matches() -> None:
    assert leading_matches([1, 2, 3], [1, 2, 9]) == 2
    assert leading_matches([1, 2, 3], [1, 2]) == 2
    assert leading_matches([5], [1]) == 0


def test_agreement_is_judged_where_prefixes_agree() -> None:
    """Behind the first difference both draft for other texts: what they say there means nothing."""
    parity = DraftParity(3)
    parity.add([1, 2, 3], [1, 2, 3], [1, 2, 7])
    parity.add([1, 2, 3], [1, 9, 3], [1, 2, 3])
    assert (parity.reached, parity.alike) == ([2, 2, 1], [2, 1, 1])
    assert parity.agreement_at == (1.0, 0.5, 1.0)
    assert (parity.trainer_accepted, parity.engine_accepted) == (5, 3)


def test_parity_fails_on_each_kind_of_difference() -> None:
    good = DraftParity(2)
    for _ in range(30):
        good.add([1, 2], [1, 2], [1, 2])
    require_parity(StateParity(10, 0), good)
    with pytest.raises(DrafterError, match="1 of 10 rows have other states"):
        require_parity(StateParity(10, 1), good)
    unlike = DraftParity(2)
    for index in range(30):
        unlike.add([1, 2], [1, 2 + (index < 8)], [5, 5])
    with pytest.raises(DrafterError, match=r"position 2 trainer and engine choose alike in 73\.3%"):
        require_parity(StateParity(10, 0), unlike)
    worse = DraftParity(1)
    for index in range(100):
        worse.add([1], [1 if index >= 4 else 2], [1 if index < 40 else 3])
    with pytest.raises(DrafterError, match="confirm 40 tokens drafted by the trainer, 36 by the engine"):
        require_parity(StateParity(10, 0), worse)


def test_states_are_computed_again_in_the_passes_of_serving() -> None:
    from paceline.train.captured import to_bfloat16

    layers = (2, 4, 5, 8)
    items = []
    for length, start in ((40, 9), (17, 1)):
        tokens = np.arange(length, dtype=np.int32) % 64
        states = to_bfloat16(expected_states(tokens.tolist(), layers, 6))
        items.append(CapturedSequence("r", "s", tokens, states, start))
    executor = StateExecutor()
    assert check_states(executor, items, layers) == StateParity(57, 0)
    assert {1, 2, 4, 8} <= set(executor.sizes)
    items[1].states[3, 5] ^= 1
    assert check_states(StateExecutor(), items, layers) == StateParity(57, 1)
