"""Laws for the theory's tests, and the one question they all ask: is the law of the output the target's?"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from paceline.theory.enumeration import completed_law, loop_law, sequence_law
from paceline.theory.laws import FloatArray, LawFunction
from paceline.theory.processes import Process

TOLERANCE = 1e-12


def laws(vocab: int) -> st.SearchStrategy[FloatArray]:
    """Laws over ``vocab`` tokens; many with zeros, ties, nearly all mass on one token, or tiny masses."""
    small = st.integers(0, 6).map(float)
    wide = st.sampled_from([0.0, 1e-9, 1e-3, 1.0, 1e3, 1e9])
    weights = st.lists(small, min_size=vocab, max_size=vocab) | st.lists(wide, min_size=vocab, max_size=vocab)
    return weights.filter(any).map(lambda values: np.array(values) / np.sum(values))


@st.composite
def history_models(draw: st.DrawFn, vocab: int, depth: int) -> LawFunction:
    """Law functions of the last ``depth`` tokens of the context, each context with a law of its own."""
    tables = [draw(st.lists(laws(vocab), min_size=vocab**n, max_size=vocab**n)) for n in range(depth + 1)]

    def model(context: tuple[int, ...]) -> FloatArray:
        recent = context[-depth:] if depth else ()
        index = 0
        for token in recent:
            index = index * vocab + token
        return tables[len(recent)][index]

    return model


def assert_exact(process: Process, target: LawFunction, horizon: int) -> None:
    """Assert that one step completed by plain decoding has the target's joint law, to 1e-12."""
    wanted = sequence_law(target, horizon)
    deviation = float(np.abs(completed_law(process, target, horizon) - wanted).max())
    assert deviation <= TOLERANCE, f"the joint law of {horizon} tokens is off by {deviation:.3g}"


def assert_loop_exact(process: Process, target: LawFunction, horizon: int) -> None:
    """Assert that the whole loop, step after step, has the target's joint law of ``horizon`` tokens."""
    wanted = sequence_law(target, horizon)
    deviation = float(np.abs(loop_law(process, len(target(())), horizon) - wanted).max())
    assert deviation <= TOLERANCE, f"the law of the loop's first {horizon} tokens is off by {deviation:.3g}"
