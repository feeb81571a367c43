"""The numbers that one request draws for drafts, coins and final tokens do not get in each other's way.

The enumeration tests prove the rules for independent numbers; here the counter-based ones run through the
whole engine, one seed per reply, and the replies are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from paceline.drafters.base import DrafterCapabilities, TokenSampler
from paceline.drafters.scripted import ScriptedDrafter
from paceline.records import Draft, TokenLaw
from paceline.sampling import kernels
from paceline.sampling.chance import Chance, SeededChance
from paceline.sampling.noise import Stream, uniform
from paceline.sampling.params import SamplingParams
from support.engines import make_rig
from support.enumerated import naive_process, target_law
from support.fake_executor import FakeExecutor, path_logits

VOCAB, PROMPT, NUM_REPLIES = 3, (1, 2), 4000


def sampled_chain(known: tuple[int, ...], budget: int, sampler: TokenSampler) -> Draft:
    tokens: list[int] = []
    laws: list[TokenLaw] = []
    for _ in range(budget):
        token, law = sampler.draw(0.3 * path_logits((7, *known[-1:]), VOCAB, 2.0), tuple(tokens))
        tokens.append(token)
        laws += [law] if law is not None else []
    return Draft.chain(tokens, laws or None)


def p_value(acceptance: Any, chance: Callable[[int], Chance] = SeededChance) -> float:
    """Return the chi-square p-value of 4,000 replies of three tokens against their law."""
    executor = FakeExecutor(vocab_size=VOCAB, spread=0.7, num_blocks=256)
    drafter = ScriptedDrafter(sampled_chain, DrafterCapabilities(gives_probabilities=True))
    rig = make_rig(
        {"scripted": drafter}, executor=executor, chance=chance, max_num_requests=8, max_draft_rows=16
    )
    common = {"max_tokens": 3, "ignore_eos": True, "drafter": "scripted", "acceptance": acceptance}
    for seed in range(NUM_REPLIES):
        rig.engine.add_request(str(seed), PROMPT, SamplingParams(seed=seed, **common))
    while rig.engine.has_unfinished:
        for output in rig.engine.step():
            if output.completion is not None:
                rig.done[output.request_id] = output.completion
    assert all(reply.metrics.num_draft_tokens >= 2 for reply in rig.done.values())
    counts = Counter(reply.token_ids for reply in rig.done.values())
    params = SamplingParams(**common)
    law = target_law(executor, params, PROMPT, naive_process(params))
    expected = np.array(list(law.values())) * NUM_REPLIES
    assert expected.min() > 5
    return float(stats.chisquare([counts[reply] for reply in law], expected).pvalue)


@pytest.mark.parametrize("acceptance", ["rejection", "block", "coupled"])
def test_replies_follow_the_target(acceptance: str) -> None:
    """False alarm 1e-7; the seeds are fixed, so it either holds or does not."""
    assert p_value(acceptance) > 1e-7


class OneStream(SeededChance):
    """Draws a draft and judges it by one and the same number."""

    def draw_draft(self, law: TokenLaw, root: int, depth: int) -> int:
        return kernels.inverse_token(law, uniform(self.seed, root, Stream.ACCEPT, depth))


def test_control_shared_numbers_are_visible() -> None:
    assert p_value("rejection", OneStream) < 1e-7
