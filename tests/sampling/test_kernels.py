"""The native sampling functions equal their numpy references, on every instruction path."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.native import _core
from paceline.records import FloatArray, TokenLaw
from paceline.sampling import kernels, reference
from paceline.sampling.noise import mix

PATHS = _core.sampling.instruction_paths()
SETTINGS = settings(max_examples=120, deadline=None)


@pytest.fixture(params=PATHS, autouse=True)
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run each test on each path this machine has; leave the best one chosen."""
    _core.sampling.choose_instruction_path(request.param)
    yield request.param
    _core.sampling.choose_instruction_path(PATHS[0])


@st.composite
def rows(draw: st.DrawFn) -> FloatArray:
    """Logits of many shapes: short and long rows, ties, far outliers, masked tokens."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.sampled_from([1, 2, 7, 8, 63, 64, 65, 500, 3001]))
    row = rng.standard_normal(size).astype(np.float32) * draw(st.sampled_from([0.1, 2.0, 30.0, 1000.0]))
    if draw(st.booleans()):
        row = np.round(row)
    if draw(st.booleans()):
        row[rng.random(size) < 0.5] = -np.inf
        row[rng.integers(size)] = 1.0
    return np.asarray(row, dtype=np.float32)


FILTERS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([1e-3, 0.3, 1.0, 3.0]),
        "top_k": st.sampled_from([0, 0, 1, 2, 40, 5000]),
        "top_p": st.sampled_from([1.0, 1.0, 0.1, 0.5, 0.95, 0.999]),
        "min_p": st.sampled_from([0.0, 0.0, 0.02, 0.5, 1.0]),
    }
)


def test_the_portable_path_is_among_them() -> None:
    assert PATHS[-1] == "portable"


def test_a_top_k_beyond_any_vocabulary_keeps_all() -> None:
    """``top_k=2**70`` passed every check and met a 32-bit argument in the native code, in the engine:
    the server answered 500. Found by schemathesis.
    """
    row = np.arange(70, dtype=np.float32)
    everything = kernels.filtered_law(row, 1.0, 0, 0.9, 0.0)
    assert kernels.filtered_law(row, 1.0, 2**70, 0.9, 0.0).probs.tobytes() == everything.probs.tobytes()


@SETTINGS
@given(row=rows(), filters=FILTERS)
def test_filtered_law(row: FloatArray, filters: dict[str, float]) -> None:
    fast, slow = kernels.filtered_law(row, **filters), reference.filtered_law(row, **filters)  # type: ignore[arg-type]
    if len(fast.ids) != len(slow.ids):
        # Only a cumulated weight very close to top_p may decide otherwise, by one token.
        assert abs(len(fast.ids) - len(slow.ids)) == 1
        shared = min(fast, slow, key=lambda law: len(law.ids))
        larger = max(fast, slow, key=lambda law: len(law.ids))
        assert abs(sum(larger.prob(int(token)) for token in shared.ids) - 1.0) < 0.5
        kept = reference.filtered_law(row, **{**filters, "top_p": 1.0})  # type: ignore[arg-type]
        mass = sum(kept.prob(int(token)) for token in shared.ids)
        assert mass == pytest.approx(filters["top_p"], rel=1e-5)
        return
    np.testing.assert_array_equal(fast.ids, slow.ids)
    np.testing.assert_allclose(fast.probs, slow.probs, rtol=1e-12, atol=0)
    assert fast.probs.sum() == pytest.approx(1.0, abs=1e-12)


@SETTINGS
@given(row=rows(), filters=FILTERS)
def test_all_paths_give_the_same_bits(row: FloatArray, filters: dict[str, float]) -> None:
    laws = []
    for name in PATHS:
        _core.sampling.choose_instruction_path(name)
        laws.append(kernels.filtered_law(row, **filters))  # type: ignore[arg-type]
    for law in laws[1:]:
        np.testing.assert_array_equal(law.ids, laws[0].ids)
        np.testing.assert_array_equal(law.probs.view(np.int64), laws[0].probs.view(np.int64))


@SETTINGS
@given(row=rows(), key=st.integers(0, 2**64 - 1))
def test_draws(row: FloatArray, key: int) -> None:
    law = reference.filtered_law(row, 1.0, 0, 1.0, 0.0)
    assert kernels.coupled_token(law, key) == reference.coupled_token(law, key)
    uniform = (mix(key) >> 12) * 2.0**-52
    assert kernels.inverse_token(law, uniform) == reference.inverse_token(law, uniform)


@SETTINGS
@given(row=rows(), wanted=st.integers(1, 70))
def test_argmax_top_ids_and_log_sum_exp(row: FloatArray, wanted: int) -> None:
    assert kernels.argmax(row) == int(np.argmax(row))
    wanted = min(wanted, len(row))
    pair = np.stack([row, row[::-1]])
    np.testing.assert_array_equal(kernels.top_ids(pair, wanted), reference.top_ids(pair, wanted))
    assert kernels.log_sum_exp(row) == pytest.approx(reference.log_sum_exp(row), rel=1e-12, abs=1e-12)


@SETTINGS
@given(first=rows(), second=rows(), scale=st.sampled_from([1.0, 0.7, 0.1, 0.0]))
def test_positive_difference(first: FloatArray, second: FloatArray, scale: float) -> None:
    p = reference.filtered_law(first, 1.0, 0, 0.9, 0.0)
    q = reference.filtered_law(second, 1.0, 0, 0.9, 0.0)
    fast, mass = kernels.positive_difference(p, q, scale)
    if mass == 0.0:
        assert len(fast.ids) == 0
        assert all(scale * p.prob(int(token)) <= q.prob(int(token)) for token in p.ids)
        return
    slow, slow_mass = reference.positive_difference(p, q, scale)
    np.testing.assert_array_equal(fast.ids, slow.ids)
    np.testing.assert_allclose(fast.probs, slow.probs, rtol=1e-12)
    assert mass == pytest.approx(slow_mass, rel=1e-12)


@SETTINGS
@given(first=rows(), second=rows(), share=st.sampled_from([1.0, 0.9]), scale=st.sampled_from([1.0, 0.7, 0.1]))
def test_positive_mass(first: FloatArray, second: FloatArray, share: float, scale: float) -> None:
    """For laws on a whole vocabulary (share 1) and on parts of one."""
    p = reference.filtered_law(first, 1.0, 0, share, 0.0)
    q = reference.filtered_law(second, 1.0, 0, 0.9, 0.0)
    assert kernels.positive_mass(p, q, scale) == pytest.approx(
        reference.positive_difference(p, q, scale)[1], abs=1e-12
    )
    assert kernels.positive_mass(p, p, 1.0) <= 1e-12


@pytest.mark.parametrize("bad", ["nan", "masked", "infinite"])
def test_rows_without_a_law_are_errors(bad: str) -> None:
    row = np.zeros(100, dtype=np.float32)
    row[70:71] = {"nan": np.nan, "masked": 0.0, "infinite": np.inf}[bad]
    if bad == "masked":
        row[:] = -np.inf
    for function in (
        kernels.argmax,
        kernels.log_sum_exp,
        lambda x: kernels.filtered_law(x, 1.0, 0, 0.9, 0.0),
    ):
        with pytest.raises(ValueError, match=r"NaN|masked|infinity"):
            function(row)


def test_no_filter_shares_the_ids_of_the_vocabulary() -> None:
    """A whole vocabulary of ids is made once, not once per row."""
    rows = np.random.default_rng(0).standard_normal((2, 1000)).astype(np.float32)
    first, second = (kernels.filtered_law(row, 1.0, 0, 1.0, 0.0) for row in rows)
    assert first.ids is second.ids
    assert not first.ids.flags.writeable


def test_ties_keep_lower_ids() -> None:
    law = kernels.filtered_law(np.zeros(100, dtype=np.float32), 1.0, 3, 1.0, 0.0)
    assert law.ids.tolist() == [0, 1, 2]
    law = kernels.filtered_law(np.array([-0.0, 0.0, -0.0], np.float32), 1.0, 2, 1.0, 0.0)
    assert law.ids.tolist() == [0, 1]
    law = kernels.filtered_law(np.zeros(4, dtype=np.float32), 1.0, 0, 0.5, 0.0)
    assert law == TokenLaw(law.ids, law.probs)
    assert law.ids.tolist() == [0, 1]
