"""The draft vocabulary covers what the target writes, and always lets it stop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.errors import ConfigError
from paceline.train.rows import Row
from paceline.train.vocabulary import DraftVocabulary, choose_vocabulary, count_responses


def test_only_responses_count() -> None:
    rows = [Row("a", "s", (5, 5, 5), (1, 2, 2), 0.0), Row("b", "s", (5,), (2,), 1.0)]
    assert count_responses(rows, 8).tolist() == [0, 1, 3, 0, 0, 0, 0, 0]
    with pytest.raises(ConfigError, match="row 'a' holds the token 5, but the target has 2"):
        count_responses(rows, 2)


def test_the_most_frequent_are_chosen_in_the_order_of_ids() -> None:
    counts = np.arange(64, dtype=np.int64)
    chosen = choose_vocabulary(counts, 16)
    assert chosen.draft_to_target.tolist() == list(range(48, 64))
    assert chosen.draft_to_target.dtype == np.int32
    assert chosen.coverage == pytest.approx(sum(range(48, 64)) / sum(range(64)))


def test_eos_is_in_it_however_rare() -> None:
    """Without EOS a head can never draft the end, and each reply pays a rejected draft for it."""
    counts = np.full(64, 100, dtype=np.int64)
    counts[40], counts[41] = 1, 0
    chosen = choose_vocabulary(counts, 16, always=(40, 41)).draft_to_target.tolist()
    assert 40 in chosen
    assert 41 not in chosen, "a token that never occurs is a wasted row"
    assert chosen == [*range(15), 40]


def test_coverage_is_reported_for_other_sizes() -> None:
    counts = np.ones(5000, dtype=np.int64)
    counts[:1024] = 9
    found = dict(choose_vocabulary(counts, 32).coverage_at)
    assert list(found) == [1024, 2048, 4096, 5000]
    assert found[1024] == pytest.approx(9 * 1024 / counts.sum())
    assert found[5000] == 1.0


@pytest.mark.parametrize("size", [0, 15, 24, 80])
def test_sizes_the_kernel_cannot_use_are_refused(size: int) -> None:
    with pytest.raises(ConfigError, match="multiple of 16 below the target's 64"):
        choose_vocabulary(np.ones(64, dtype=np.int64), size)


def test_all_of_it_is_a_choice_and_nothing_counted_is_an_error() -> None:
    assert len(choose_vocabulary(np.ones(70, dtype=np.int64), 70).draft_to_target) == 70
    with pytest.raises(ConfigError, match="no response token"):
        choose_vocabulary(np.zeros(64, dtype=np.int64), 16)


def test_written_and_read_back(tmp_path: Path) -> None:
    chosen = choose_vocabulary(np.arange(64, dtype=np.int64), 32)
    chosen.write(tmp_path / "v.json")
    again = DraftVocabulary.read(tmp_path / "v.json")
    assert again.draft_to_target.tolist() == chosen.draft_to_target.tolist()
    assert (again.coverage, again.coverage_at) == (chosen.coverage, chosen.coverage_at)
    (tmp_path / "v.json").write_text("{}")
    with pytest.raises(ConfigError, match="damaged"):
        DraftVocabulary.read(tmp_path / "v.json")
