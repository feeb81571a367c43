"""The draft model: right chains, exact rollback, vocabularies and pairings that are checked."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.drafters.base import DraftContext
from paceline.drafters.copy_check import LowAcceptanceWarning
from paceline.drafters.draft_model import DraftModel, DraftModelDrafter, DraftModelOptions, DraftModelSession
from paceline.drafters.vocabulary import copy_prompt, shared_vocabulary_size
from paceline.errors import DrafterError, VocabularyMismatchError
from paceline.executors.base import Executor, ForwardBatch
from paceline.kv.block_pool import BlockPool
from paceline.records import FloatArray, IntArray, StepObservation, TokenLaw
from support.draft_play import ArgmaxSampler, context

V = 50
WORDS = tuple(f"Ġword{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(V))
UNTESTED = DraftModelOptions(min_copy_agreement=0.0)
NextToken = Callable[[tuple[int, ...]], int]


def written_by_last_three(seen: tuple[int, ...]) -> int:
    """A next token that depends on the three last ones, so that a stale cache shows."""
    return sum((i + 1) * token for i, token in enumerate(seen[-3:])) * 7 % V


def copier(seen: tuple[int, ...]) -> int:
    """Copies what followed the last token before."""
    for i in range(len(seen) - 2, -1, -1):
        if seen[i] == seen[-1]:
            return seen[i + 1]
    return 0


class SlotExecutor:
    """Keeps the token and a digest of everything before it in each slot, as keys and values would."""

    def __init__(
        self, next_token: NextToken, num_blocks: int = 32, vocab_size: int = V, max_context: int = 400
    ) -> None:
        self.next_token = next_token
        self.vocab_size = vocab_size
        self.max_context = max_context
        self.block_size = 4
        self.num_blocks = num_blocks
        self.tokens = np.full(num_blocks * self.block_size, -1, dtype=np.int64)
        self.digests = np.zeros(num_blocks * self.block_size, dtype=np.int64)
        self.rows_per_forward: list[int] = []

    def forward(self, batch: ForwardBatch) -> FloatArray:
        assert len(batch.tails) == 0
        physical = [self.physical(batch.blocks, slot) for slot in batch.slots.tolist()]
        self.rows_per_forward.append(len(batch.tokens))
        logits = np.zeros((len(batch.logit_rows), self.vocab_size), dtype=np.float32)
        wanted = {int(row): i for i, row in enumerate(batch.logit_rows)}
        for row, (token, prefix) in enumerate(zip(batch.tokens, batch.prefix_lengths, strict=True)):
            assert prefix == batch.slots[row] + 1
            self.tokens[physical[row]] = token
            seen = tuple(int(self.tokens[self.physical(batch.blocks, slot)]) for slot in range(prefix))
            self.digests[physical[row]] = hash(seen)
            if row in wanted:
                logits[wanted[row], self.next_token(seen)] = 5.0
        return logits

    def physical(self, blocks: IntArray, slot: int) -> int:
        return int(blocks[slot // self.block_size]) * self.block_size + slot % self.block_size

    def forward_with_states(
        self, batch: ForwardBatch, layers: Sequence[int]
    ) -> tuple[FloatArray, FloatArray]:
        raise AssertionError("no hidden states are wanted")

    def move_slots(self, source: IntArray, destination: IntArray) -> None:
        raise AssertionError("a chain never moves slots")

    def first_layers(self, num_layers: int, num_blocks: int) -> Executor:
        return SlotExecutor(self.next_token, num_blocks)


def drafter_of(
    executor: SlotExecutor, target: SlotExecutor | None = None, options: DraftModelOptions = UNTESTED
) -> DraftModelDrafter:
    return DraftModelDrafter(
        DraftModel("tiny", executor, WORDS[: executor.vocab_size]),
        target=target or SlotExecutor(executor.next_token),
        target_vocabulary=WORDS,
        options=options,
    )


def cache_of(session: DraftModelSession, executor: SlotExecutor) -> list[int]:
    """The digests in the slots of the cached tokens."""
    blocks = np.array(session._sequence.table.blocks, dtype=np.int32)
    return [int(executor.digests[executor.physical(blocks, slot)]) for slot in range(len(session.cached))]


def written(prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    """What the model itself writes after ``prompt``."""
    seen = prompt
    for _ in range(count):
        seen += (written_by_last_three(seen),)
    return seen[len(prompt) :]


def test_a_chain_is_what_the_draft_model_writes() -> None:
    executor = SlotExecutor(written_by_last_three)
    session = drafter_of(executor).start(context([3, 1, 4]))
    draft = session.propose(5)
    assert draft.tree.tokens == written((3, 1, 4), 5)
    assert draft.tree.is_chain()
    assert draft.laws is None
    assert executor.rows_per_forward == [3, 1, 1, 1, 1]


def test_catch_up_takes_two_rows_after_full_acceptance_and_one_after_a_rejection() -> None:
    executor = SlotExecutor(written_by_last_three)
    session = drafter_of(executor).start(context([3, 1, 4]))
    draft = session.propose(3)
    session.observe(StepObservation((*draft.tree.tokens, 9), 3, draft))
    executor.rows_per_forward.clear()
    draft = session.propose(3)
    assert executor.rows_per_forward == [2, 1, 1]
    session.observe(StepObservation((draft.tree.tokens[0], (draft.tree.tokens[1] + 1) % V), 1, draft))
    executor.rows_per_forward.clear()
    session.propose(1)
    assert executor.rows_per_forward == [1]


def test_a_long_prompt_is_computed_in_chunks() -> None:
    executor = SlotExecutor(written_by_last_three, num_blocks=100)
    prompt = tuple(i % V for i in range(300))
    assert drafter_of(executor).start(context(prompt)).propose(1).tree.tokens == written(prompt, 1)
    assert executor.rows_per_forward == [256, 44]


def test_a_recovered_token_that_equals_the_refused_one_is_computed_again() -> None:
    """Block verification may refuse a drafted token and then draw that very token.

    The cache held its keys and values already, all committed tokens were thought to be computed, and the next
    draft started from the logits of no row at all.
    """
    executor = SlotExecutor(written_by_last_three)
    session = drafter_of(executor).start(context([3, 1, 4]))
    draft = session.propose(4)
    session.observe(StepObservation(draft.tree.tokens[:3], 2, draft))
    assert session.propose(2).tree.tokens == written((3, 1, 4, *draft.tree.tokens[:3]), 2)


@given(
    prompt=st.lists(st.integers(0, V - 1), min_size=1, max_size=9),
    steps=st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, V - 1), st.integers(0, 2)), max_size=8
    ),
)
def test_rollback_leaves_the_cache_of_a_fresh_prefill(
    prompt: list[int], steps: list[tuple[int, int, int, int]]
) -> None:
    """Any budgets and acceptances, with steps that commit without a proposal in between."""
    executor = SlotExecutor(written_by_last_three)
    drafter = drafter_of(executor)
    session = drafter.start(context(prompt))
    known = list(prompt)
    for budget, kept, recovered, silent in steps:
        draft = session.propose(budget)
        accepted = min(kept, len(draft))
        committed = (*draft.tree.tokens[:accepted], recovered, *[7] * silent)
        session.observe(StepObservation(committed, accepted, draft))
        known += committed
        assert session.cached == tuple(known[: len(session.cached)])
        drafter._pool.check([session._sequence.table.blocks])
        fresh = SlotExecutor(written_by_last_three)
        other = drafter_of(fresh).start(context(known))
        other.propose(1)
        assert cache_of(session, executor) == cache_of(other, fresh)[: len(session.cached)]
    assert session.propose(4).tree.tokens == written(tuple(known), 4)
    session.stop()
    assert drafter.num_free_blocks == executor.num_blocks


def test_a_full_cache_silences_a_request_until_another_ends() -> None:
    executor = SlotExecutor(written_by_last_three, num_blocks=4)
    drafter = drafter_of(executor)
    first, second = drafter.start(context([1] * 9)), drafter.start(context([2] * 6))
    assert len(first.propose(3)) == 3
    assert len(second.propose(3)) == 0
    first.stop()
    assert len(second.propose(3)) == 3
    second.stop()
    assert drafter.num_free_blocks == 4


def test_drafts_end_with_the_context_of_the_draft_model() -> None:
    executor = SlotExecutor(written_by_last_three, max_context=10)
    session = drafter_of(executor).start(context([1] * 8))
    assert len(session.propose(7)) == 3  # the last drafted token needs no slot
    session.observe(StepObservation((1, 1, 1), 0))
    assert len(session.propose(7)) == 0


def test_sampled_chains_carry_the_law_of_each_token() -> None:
    class Sampler:
        def __init__(self) -> None:
            self.paths: list[tuple[int, ...]] = []

        def draw(
            self, logits: FloatArray, path: tuple[int, ...], ids: IntArray | None = None
        ) -> tuple[int, TokenLaw | None]:
            self.paths.append(path)
            best = int(np.argmax(logits))
            ids = np.array(sorted((best, (best + 1) % V)), dtype=np.int32)
            return best, TokenLaw(ids, np.array([0.5, 0.5]))

    sampler = Sampler()
    session = drafter_of(SlotExecutor(written_by_last_three)).start(DraftContext("r", (3, 1, 4), sampler))
    draft = session.propose(3)
    assert draft.laws is not None
    assert [law.prob(token) for law, token in zip(draft.laws, draft.tree.tokens, strict=True)] == [0.5] * 3
    assert sampler.paths == [(), draft.tree.tokens[:1], draft.tree.tokens[:2]]


def test_blocks_come_back_when_the_sampler_raises() -> None:
    class Broken(ArgmaxSampler):
        def draw(
            self, logits: FloatArray, path: tuple[int, ...], ids: IntArray | None = None
        ) -> tuple[int, TokenLaw | None]:
            raise RuntimeError("no law")

    drafter = drafter_of(SlotExecutor(written_by_last_three))
    session = drafter.start(DraftContext("r", (1, 2), Broken()))
    with pytest.raises(RuntimeError, match="no law"):
        session.propose(3)
    session.stop()
    assert drafter.num_free_blocks == 32


def test_ids_the_draft_model_lacks_are_never_drawn() -> None:
    seen: list[FloatArray] = []

    class Spy(ArgmaxSampler):
        def draw(
            self, logits: FloatArray, path: tuple[int, ...], ids: IntArray | None = None
        ) -> tuple[int, TokenLaw | None]:
            seen.append(logits.copy())
            return super().draw(logits, path)

    target_words = (*WORDS[:40], *(f"[PAD{i}]" for i in range(40, V)))
    drafter = DraftModelDrafter(
        DraftModel("short", SlotExecutor(lambda seen: 3, vocab_size=44), WORDS[:40]),
        target=SlotExecutor(lambda seen: 3),
        target_vocabulary=target_words,
        options=UNTESTED,
    )
    drafter.start(DraftContext("r", (1,), Spy())).propose(2)
    for logits in seen:
        assert logits.shape == (V,)
        assert np.isfinite(logits[:40]).all()
        assert np.isneginf(logits[40:]).all()


def test_vocabularies_are_compared_id_by_id() -> None:
    assert shared_vocabulary_size(["a", "b"], ["a", "b"], "d") == 2
    assert shared_vocabulary_size(["a", "b", "[PAD2]", "<unused3>"], ["a", "b"], "d") == 2
    assert shared_vocabulary_size(["a", "b"], ["a", "b", "<|reserved_special_token_1|>", ""], "d") == 2
    assert shared_vocabulary_size(["a", "[PAD1]"], ["a", "<unused0>"], "d") == 2
    with pytest.raises(VocabularyMismatchError, match=r"'small'.*id 1 is 'b' for the target and 'c'"):
        shared_vocabulary_size(["a", "b", "x"], ["a", "c", "y"], "small")
    with pytest.raises(VocabularyMismatchError, match="id 2 is 'word' for the target and no such id"):
        shared_vocabulary_size(["a", "b", "word"], ["a", "b"], "small")
    with pytest.raises(VocabularyMismatchError, match="id 2 is no such id for the target and '<think>'"):
        shared_vocabulary_size(["a", "b"], ["a", "b", "<think>"], "small")


def test_a_mismatch_stops_the_drafter_from_being_built() -> None:
    with pytest.raises(VocabularyMismatchError, match="id 0"):
        DraftModelDrafter(
            DraftModel("other", SlotExecutor(copier), WORDS[::-1]),
            target=SlotExecutor(copier),
            target_vocabulary=WORDS,
        )


def test_the_self_test_is_quiet_for_a_pair_that_copies_alike() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drafter_of(SlotExecutor(copier), options=DraftModelOptions())


def test_the_self_test_warns_of_a_pair_that_does_not() -> None:
    with pytest.warns(LowAcceptanceWarning, match=r"'tiny' agrees .* on 0% .*too few layers"):
        drafter_of(SlotExecutor(lambda seen: 49), target=SlotExecutor(copier), options=DraftModelOptions())


def test_the_self_test_leaves_running_requests_alone() -> None:
    """Drafters are built when a request first asks for them, and others may run then.

    The self-test once wrote to the target's first blocks, whoever owned them.
    """
    target = SlotExecutor(copier)
    pool = BlockPool(target.num_blocks)
    owned = pool.take(5)
    target.tokens[:] = 7
    DraftModelDrafter(
        DraftModel("tiny", SlotExecutor(copier), WORDS),
        target=target,
        target_vocabulary=WORDS,
        target_pool=pool,
    )
    slots = [block * target.block_size + offset for block in owned for offset in range(target.block_size)]
    assert (target.tokens[slots] == 7).all()
    assert (target.tokens != 7).any()
    pool.check([owned])


def test_the_self_test_makes_do_with_little_room(caplog: pytest.LogCaptureFixture) -> None:
    """It once refused the request, in words about a cache that had room.

    A context under 72 tokens, or other requests holding the cache when the drafter was first asked for, were
    enough, although the request itself would have run.
    """
    for target in (SlotExecutor(copier, num_blocks=7), SlotExecutor(copier, max_context=64)):
        with pytest.warns(LowAcceptanceWarning, match="0%"):
            drafter_of(SlotExecutor(lambda seen: 49), target=target, options=DraftModelOptions())
    assert not caplog.records
    drafter_of(SlotExecutor(lambda seen: 49, num_blocks=5), options=DraftModelOptions())
    assert "was not tested against its target" in caplog.text
    with pytest.raises(DrafterError, match="no KV blocks"):
        drafter_of(SlotExecutor(copier, num_blocks=0))


def test_a_copy_prompt_repeats_plain_words() -> None:
    prompt = copy_prompt(
        ["<s>", "Ġthe", "##", "Ġof", "Ġwords", "▁like", "Ġthese", "x"], num_words=3, repeats=2
    )
    assert prompt == (1, 4, 5) * 2
    assert len(copy_prompt(["<unk>", "a", "b", "[PAD3]"], num_words=2)) == 6
