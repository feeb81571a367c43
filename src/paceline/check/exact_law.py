"""The law of a reply's first tokens by definition: processors and filters written out, every path enumerated.

Nothing here is shared with the loop but the logits: what the engine draws is compared with a second opinion.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from paceline.errors import ConfigError
from paceline.records import FloatArray
from paceline.sampling.params import SamplingParams
from paceline.sampling.reference import filtered_law

Reply = tuple[int, ...]
SequenceLaw = dict[Reply, float]


def processed(logits: FloatArray, params: SamplingParams, prompt: Reply, reply: Reply) -> FloatArray:
    """Return ``logits`` float32 [V] after bias and penalties, as their papers write them.

    ``min_tokens`` is not known here: checks run without end tokens.
    """
    row = logits.copy()
    for token, bias in (params.logit_bias or {}).items():
        row[token] += np.float32(bias)
    if not params.has_penalties:
        return row
    for token in {*prompt, *reply}:
        factor = np.float32(params.repetition_penalty)
        row[token] = row[token] / factor if row[token] > 0 else row[token] * factor
    for token in set(reply):
        row[token] -= np.float32(params.frequency_penalty) * np.float32(reply.count(token))
        row[token] -= np.float32(params.presence_penalty)
    return row


def enumerate_law(
    logits: Callable[[Reply], FloatArray], params: SamplingParams, prompt: Reply, num_tokens: int
) -> SequenceLaw:
    """Return the probability of every reply of ``num_tokens`` tokens that can be drawn.

    ``logits(path)`` float32 [V] behind a path of tokens. Raises ``ConfigError`` without ``top_k``, which
    leaves too many replies.
    """
    if not 1 <= params.top_k <= 16:
        raise ConfigError(
            f"top_k={params.top_k}: only a top_k from 1 to 16 leaves few enough replies to count"
        )
    law: SequenceLaw = {(): 1.0}
    for _ in range(num_tokens):
        longer: SequenceLaw = {}
        for reply, weight in law.items():
            row = processed(logits((*prompt, *reply)), params, prompt, reply)
            after = filtered_law(row, params.temperature, params.top_k, params.top_p, params.min_p)
            for token, prob in zip(after.ids.tolist(), after.probs.tolist(), strict=True):
                longer[(*reply, token)] = weight * prob
        law = longer
    return law
