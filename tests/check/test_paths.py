"""Forwards that are remembered say what forwards that are run would say, and a cache mistake still shows."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.check.paths import ArrayMemo, MemoExecutor, PathReader
from paceline.executors.base import ForwardBatch
from paceline.sampling.params import SamplingParams
from support.engines import make_rig, random_script, scripted
from support.fake_executor import FakeExecutor, path_logits, path_state


def hashes(executor: FakeExecutor | MemoExecutor, seed: int) -> list[tuple[str, ...]]:
    """Return the logit hashes of three requests with random trees, run together."""
    fake = FakeExecutor()
    rig = make_rig(scripted(random_script(seed, 0.6, 0.4, fake)), executor=executor)  # type: ignore[arg-type]
    for number in range(3):
        params = SamplingParams(
            temperature=0, max_tokens=10, ignore_eos=True, drafter="scripted", num_draft_tokens=5
        )
        rig.engine.add_request(str(number), (1 + number, 2, 5), params)
    return [reply.logit_hashes or () for _, reply in sorted(rig.finish().items())]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_engine_on_remembered_forwards_is_the_same_engine(seed: int) -> None:
    fake = FakeExecutor()
    memo = MemoExecutor(fake, num_blocks=64)
    wanted = hashes(FakeExecutor(), seed)
    assert hashes(memo, seed) == wanted
    used = fake.num_forwards
    again = MemoExecutor(fake, num_blocks=64)
    again._readers = memo._readers
    assert hashes(again, seed) == wanted
    assert fake.num_forwards == used, "known paths need no forward"


def test_states_are_those_of_the_path() -> None:
    memo = MemoExecutor(FakeExecutor(), num_blocks=8)
    batch = ForwardBatch.chain((3, 4, 5), 0, (2, 6), 1)
    logits, states = memo.forward_with_states(batch, (0, 2))
    assert (logits[0] == path_logits((3, 4, 5), 12, 2.0)).all()
    wanted = [
        np.concatenate([path_state((3, 4, 5)[: i + 1], layer, 3) for layer in (0, 2)]) for i in range(3)
    ]
    assert (states == np.stack(wanted)).all()
    # The first two are remembered from here; the reader must not take their states for those of other paths.
    other = memo.forward_with_states(ForwardBatch.chain((3, 9), 0, (1,), 1), (0, 2))[1]
    assert (other[0] == wanted[0]).all()
    assert (other[1][:3] == path_state((3, 9), 0, 3)).all()


def test_a_slot_that_was_never_written_is_noticed() -> None:
    memo = MemoExecutor(FakeExecutor(), num_blocks=8)
    with pytest.raises(AssertionError, match="never written"):
        memo.forward(ForwardBatch.chain((3, 4), 2, (0, 1), 1))


def test_a_reader_runs_each_path_once_and_shares_beginnings() -> None:
    fake = FakeExecutor()
    reader = PathReader(fake)
    for path in ((1, 2, 3), (1, 2, 4), (1,), (1, 2, 3)):
        assert (reader.logits(path) == path_logits(path, 12, 2.0)).all()
    assert [len(batch.tokens) for batch in fake.batches] == [3, 1, 1]


def test_a_memo_forgets_what_was_not_used_for_longest() -> None:
    memo = ArrayMemo(max_bytes=3 * 40)
    for key in range(3):
        memo.put(key, np.zeros(10, dtype=np.float32))
    assert memo.get(0) is not None
    memo.put(3, np.zeros(10, dtype=np.float32))
    assert memo.get(1) is None
    assert all(memo.get(key) is not None for key in (0, 2, 3))
