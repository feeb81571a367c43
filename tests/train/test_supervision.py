"""Which tokens count in training, and how they are shown."""

from __future__ import annotations

import pytest

from paceline.errors import ConfigError
from paceline.models.loading import load_model_files
from paceline.models.tokenizer import Tokenizer
from paceline.train.rows import Row
from paceline.train.supervision import MIN_RESPONSE, count_supervised, render_row, supervised_positions
from support.tiny_models import write_tiny_gguf


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    with load_model_files(write_tiny_gguf(tmp_path_factory.mktemp("m") / "tiny.gguf")) as files:
        return files.tokenizer


def test_the_first_token_of_a_reply_is_the_targets_own() -> None:
    """Worked example of ``ttt``: t0 … t5 with the reply from t3 on. Chains predict t4 and t5."""
    assert list(supervised_positions(6, 3)) == [4, 5]
    assert list(supervised_positions(6, 4)) == [5]
    assert list(supervised_positions(6, 5)) == [], "the only token is the target's own"
    assert list(supervised_positions(3, 3)) == []


def test_the_trainer_supervises_the_same_number() -> None:
    """A second opinion from the batches that are trained on: a chain that starts at i predicts i + 2."""
    pytest.importorskip("torch")
    import numpy as np
    import torch

    from paceline.train.batches import MIN_REPLY_TOKENS, make_batch
    from paceline.train.captured import CapturedSequence

    assert MIN_REPLY_TOKENS == MIN_RESPONSE
    item = CapturedSequence("r", "s", np.arange(9, dtype=np.int32), np.zeros((9, 8), np.uint16), 4)
    batch = make_batch([item], torch.zeros((9, 2)), 2)
    assert (batch.chain_positions + 2).tolist() == list(supervised_positions(9, 4))


def test_zero_supervised_tokens_is_an_error() -> None:
    rows = [Row("a", "s", (1, 2), (3,), 0.0), Row("b", "s", (1, 2), (), 0.0)]
    with pytest.raises(ConfigError, match="zero supervised tokens in 2 rows"):
        count_supervised(rows)
    assert count_supervised([*rows, Row("c", "s", (1,), (2, 3, 4, 5), 0.0)]) == 3


def test_each_token_is_shown_with_its_part(tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode("<|im_start|>the", parse_special=True)
    response = tokenizer.encode("and in é on")
    outside = response[2]
    vocabulary = [token for token in response if token != outside]
    row = Row("r", "s", tuple(prompt), tuple(response), 0.0)
    text = render_row(row, tokenizer, kept=len(response) - 1, vocabulary=vocabulary)
    assert text.plain == "<|im_start|>theand in é on", "characters of several tokens stay whole"
    shown = {text.plain[span.start : span.end]: span.style for span in text.spans}
    assert shown["<|im_start|>"] == "dim"
    assert shown[tokenizer.decode([response[0]])] == "dim", "read, not predicted"
    assert "green" in shown.values()
    assert shown[tokenizer.decode([outside])] == "green underline"
    assert text.spans[-1].style == "red strike" or text.spans[-2].style == "red strike"
