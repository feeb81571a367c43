"""Drive a draft session as the engine would, against a continuation that is known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.drafters.base import DraftContext, Drafter, DraftSession
from paceline.records import Draft, FloatArray, IntArray, StepObservation, TokenLaw
from paceline.tree import ROOT


class ArgmaxSampler:
    """Greedy: the draft model's likeliest token, no law."""

    def draw(
        self, logits: FloatArray, path: tuple[int, ...], ids: IntArray | None = None
    ) -> tuple[int, TokenLaw | None]:
        best = int(np.argmax(logits))
        return (best if ids is None else int(ids[best])), None


@dataclass(frozen=True)
class PlayedStep:
    """One step: the draft, how many of its tokens were accepted, the tokens committed."""

    draft: Draft
    accepted: int
    committed: tuple[int, ...]


def context(prompt: Sequence[int], prediction: Sequence[int] = (), request_id: str = "r") -> DraftContext:
    """Return a draft context with a greedy sampler."""
    return DraftContext(request_id, tuple(prompt), ArgmaxSampler(), tuple(prediction))


def accept(draft: Draft, truth: Sequence[int]) -> int:
    """Return how many tokens of ``truth`` lie on one path of the draft."""
    node, depth = ROOT, 0
    while depth < len(truth):
        hits = [child for child in draft.tree.children(node) if draft.tree.tokens[child] == truth[depth]]
        if not hits:
            break
        node, depth = hits[0], depth + 1
    return depth


def observation(
    draft: Draft, accepted: int, committed: tuple[int, ...], root: int, vocab_size: int = 64
) -> StepObservation:
    """Return what the engine would tell: each verified token's successors are made up from its id."""
    verified = np.array([root, *draft.tree.tokens], dtype=np.int32)
    top = (verified[:, None] * 7 + np.arange(8, dtype=np.int32)[None, :] * 3 + 1) % vocab_size
    path = [root, *committed[:-1]]
    for row, token in enumerate(verified.tolist()):
        if token in path:
            follower = committed[path.index(token)]
            top[row, top[row] == follower] = top[row, 0]  # a row holds eight different tokens
            top[row, 0] = follower
    return StepObservation(committed, accepted, draft, verified, top.astype(np.int32))


def play(session: DraftSession, prompt: Sequence[int], reply: Sequence[int], budget: int) -> list[PlayedStep]:
    """Run a whole reply through ``session``; every draft is checked against its budget."""
    session.observe(observation(Draft(), 0, (reply[0],), prompt[-1]))
    steps: list[PlayedStep] = []
    done = 1
    while done < len(reply):
        draft = session.propose(budget)
        assert len(draft) <= budget
        accepted = min(accept(draft, reply[done:]), len(reply) - done - 1)
        committed = tuple(reply[done : done + accepted + 1])
        session.observe(observation(draft, accepted, committed, reply[done - 1]))
        steps.append(PlayedStep(draft, accepted, committed))
        done += len(committed)
    return steps


def tokens_per_step(drafter: Drafter, prompt: Sequence[int], reply: Sequence[int], budget: int) -> float:
    """Return output tokens ÷ verify steps of one replayed reply."""
    session = drafter.start(context(prompt))
    steps = play(session, prompt, reply, budget)
    session.stop()
    return (len(reply) - 1) / len(steps)
