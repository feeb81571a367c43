"""Processors equal their formulas on any history and path, and leave no trace of a path."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.sampling.params import SamplingParams
from paceline.sampling.processors import Processors
from support.enumerated import naive_process

VOCAB = 150
TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=100)
PARAMS = st.builds(
    SamplingParams,
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.8]),
    frequency_penalty=st.sampled_from([0.0, 0.5, -1.0]),
    presence_penalty=st.sampled_from([0.0, 0.25, -2.0]),
    logit_bias=st.sampled_from([None, {3: 2.0, 140: -100.0}]),
    min_tokens=st.integers(0, 16),
    stop_token_ids=st.sampled_from([(), (5, 6)]),
)


@settings(max_examples=100, deadline=None)
@given(
    params=PARAMS, prompt=TOKENS, reply=TOKENS, paths=st.lists(TOKENS.map(lambda t: tuple(t[:8])), max_size=3)
)
def test_processors(
    params: SamplingParams, prompt: list[int], reply: list[int], paths: list[tuple[int, ...]]
) -> None:
    processors = Processors(params, prompt, eos_ids=())
    for token in reply:
        processors.append(token)
    logits = np.random.default_rng(len(prompt)).standard_normal(VOCAB).astype(np.float32)
    before = logits.copy()
    naive = naive_process(params)
    for path in [*paths, ()]:
        row = processors.apply(logits, path)
        np.testing.assert_array_equal(row, naive(logits, tuple(prompt), (*reply, *path)))
    np.testing.assert_array_equal(logits, before)


def test_the_65th_distinct_token_may_come_in_the_reply() -> None:
    """Growing the arrays while one was being indexed raised IndexError in any penalised reply that long.

    The property above hardly ever drew a history that crossed 64 distinct tokens outside its prompt.
    """
    params = SamplingParams(frequency_penalty=0.5, max_tokens=None)
    for prompt_length in (0, 60, 64):
        processors = Processors(params, range(prompt_length), eos_ids=())
        for token in range(prompt_length, VOCAB):
            processors.append(token)
        row = processors.apply(np.zeros(VOCAB, dtype=np.float32), (0, *range(140, VOCAB)))
        reply = (*range(prompt_length, VOCAB), 0, *range(140, VOCAB))
        np.testing.assert_array_equal(row, -0.5 * np.bincount(reply, minlength=VOCAB).astype(np.float32))


def test_nothing_to_do_copies_nothing() -> None:
    logits = np.zeros(VOCAB, dtype=np.float32)
    assert Processors(SamplingParams(), (1, 2), eos_ids={3}).apply(logits, (4,)) is logits


def test_eos_is_masked_until_min_tokens_unless_ignored() -> None:
    logits = np.zeros(VOCAB, dtype=np.float32)
    for ignore in (False, True):
        processors = Processors(SamplingParams(min_tokens=2, ignore_eos=ignore), (1,), eos_ids={3})
        masked = np.isneginf(processors.apply(logits, (9,))[3])
        assert masked == (not ignore)
        assert processors.apply(logits, (9, 9))[3] == 0.0
