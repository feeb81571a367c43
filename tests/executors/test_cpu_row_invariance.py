"""Law 7: the logits of a token are the same bits whatever stands beside it, on every instruction path.

Every comparison here is ``==`` on float bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from paceline.executors.cpu import ISA_VARIABLE, CpuExecutor, available_paths
from paceline.records import FloatArray
from paceline.tree import TokenTree
from support.native_batches import Rows, int32, load_executor, run
from support.tiny_models import write_tiny_gguf
from support.tiny_tokenizer import VOCAB_SIZE

SHAPES = [("llama", "q4_1"), ("gemma3", "q8_0"), ("gemma2", "q6_k"), ("phi3", "q4_0"), ("qwen3", "bf16")]
SHAPES += [("mistral", "q5_0"), ("qwen2", "q4_k"), ("llama", "f32"), ("llama", "q5_k"), ("llama", "q5_1")]
LENGTH = 150
FIRST_BLOCKS = tuple(range(12))


def _tokens(count: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(int(t) for t in np.random.default_rng(seed).integers(0, VOCAB_SIZE, count))


def _same(a: FloatArray, b: FloatArray) -> bool:
    return a.tobytes() == b.tobytes()


@pytest.fixture(params=[(*shape, path) for path in available_paths() for shape in SHAPES], ids="-".join)
def executor(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CpuExecutor]:
    arch, ggml_type, path = request.param
    monkeypatch.setenv(ISA_VARIABLE, path)
    yield load_executor(write_tiny_gguf(tmp_path / "m.gguf", arch, ggml_type), num_blocks=40)


def test_any_chunking_gives_the_same_logits(executor: CpuExecutor) -> None:
    tokens = _tokens(LENGTH)
    whole = run(executor, Rows(tokens, 0, FIRST_BLOCKS))
    rng = np.random.default_rng(1)
    for largest in (1, 4, 9, 20, 70):
        pieces: list[FloatArray] = []
        start = 0
        while start < LENGTH:
            count = int(rng.integers(1, largest + 1))
            pieces.append(run(executor, Rows(tokens[start : start + count], start, FIRST_BLOCKS)))
            start += count
        assert _same(np.concatenate(pieces), whole), largest


def test_neighbours_and_block_tables_do_not_matter(executor: CpuExecutor) -> None:
    tokens, other = _tokens(70), _tokens(90, seed=1)
    alone = run(executor, Rows(tokens, 0, FIRST_BLOCKS))
    shuffled = np.random.default_rng(2).permutation(40).tolist()
    mine, theirs = tuple(shuffled[:12]), tuple(shuffled[12:24])
    together = run(executor, Rows(other, 0, theirs), Rows(tokens, 0, mine))
    assert _same(together[90:], alone)
    last = run(
        executor, Rows(other[:3], 90, theirs), Rows(tokens[:1], 70, mine), Rows(other[3:5], 93, theirs)
    )
    run(executor, Rows(tokens, 0, FIRST_BLOCKS))
    assert _same(last[3:4], run(executor, Rows(tokens[:1], 70, FIRST_BLOCKS)))


def test_every_path_of_a_tree_equals_its_chain(executor: CpuExecutor) -> None:
    prompt = _tokens(61)  # the tree crosses a block and a chunk of 64 positions
    rng = np.random.default_rng(3)
    parents = tuple(int(rng.integers(-1, node)) for node in range(12))
    tree = TokenTree(tuple(range(20, 32)), parents)
    run(executor, Rows(prompt[:-1], 0, FIRST_BLOCKS))
    for size in (1, 3, 4, 7, 12):
        part = tree.truncated(size)
        logits = run(executor, Rows(prompt[-1:], 60, FIRST_BLOCKS, part))
        for node in range(size):
            path = part.path(node)
            line = prompt[-1:] + tuple(part.tokens[i] for i in path)
            run(executor, Rows(prompt[:-1], 0, tuple(range(12, 24))))
            chain = run(executor, Rows(line, 60, tuple(range(12, 24))))
            assert _same(logits[[0, *(1 + i for i in path)]], chain), (size, node)


def test_moved_slots_are_as_good_as_computed_ones(executor: CpuExecutor) -> None:
    """A tree's accepted path is compacted by moving slots; what follows equals a fresh computation."""
    prompt = _tokens(30)
    tree = TokenTree((5, 6, 7, 8, 9), (-1, -1, 1, 2, 0))  # accept nodes 1, 2, 3: slots 31..33 → 30..32
    run(executor, Rows(prompt, 0, FIRST_BLOCKS, tree))
    executor.move_slots(int32([31, 32, 33]), int32([30, 31, 32]))
    after = run(executor, Rows((11, 12), 33, FIRST_BLOCKS))
    fresh = run(executor, Rows((*prompt, 6, 7, 8, 11, 12), 0, tuple(range(12, 24))))
    assert _same(after, fresh[-2:])


@pytest.mark.parametrize("path", available_paths())
def test_thread_count_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv(ISA_VARIABLE, path)
    file = write_tiny_gguf(tmp_path / "m.gguf", "gemma3", "q4_k")
    tokens = _tokens(100)
    results = [
        run(load_executor(file, num_threads=threads), Rows(tokens, 0, FIRST_BLOCKS))
        for threads in (1, 2, 3, 5)
    ]
    assert all(_same(result, results[0]) for result in results)


def test_batches_longer_than_one_pass_are_split_without_a_trace(tmp_path: Path) -> None:
    executor = load_executor(write_tiny_gguf(tmp_path / "m.gguf", "llama", "q8_0"), num_blocks=130)
    first, second = tuple(range(65)), tuple(range(65, 130))
    tokens = _tokens(900)
    split = run(executor, Rows(tokens, 0, first))
    halves = [run(executor, Rows(tokens[a:b], a, second)) for a, b in ((0, 450), (450, 900))]
    assert _same(split, np.concatenate(halves))


def test_first_layers_share_weights_but_not_the_cache(tmp_path: Path) -> None:
    executor = load_executor(write_tiny_gguf(tmp_path / "m.gguf", "llama", "q4_1"))
    tokens = _tokens(20)
    whole = run(executor, Rows(tokens, 0, FIRST_BLOCKS))
    shallow = executor.first_layers(1, num_blocks=12)
    assert isinstance(shallow, CpuExecutor)
    assert not _same(run(shallow, Rows(tokens, 0, FIRST_BLOCKS)), whole)
    assert _same(run(executor, Rows(tokens[-1:], 19, FIRST_BLOCKS)), whole[-1:])


def test_different_tokens_do_give_different_logits(executor: CpuExecutor) -> None:
    """The control: comparing bits would be worthless if the logits did not depend on the context."""
    a = run(executor, Rows((1, 2, 3), 0, FIRST_BLOCKS))
    b = run(executor, Rows((4, 2, 3), 0, FIRST_BLOCKS))
    assert not _same(a[1:], b[1:])
