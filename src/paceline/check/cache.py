"""Does the cache hold what it should? Random trees, accepted, refused and cut off, against a fresh prefill.

Requests run in batches with a drafter that drafts random trees, some of them right. Whatever was kept, moved
or given back on the way, the logits behind each committed token must be those of a prompt that is read at
once, bit for bit. Some requests are aborted on the way, so that their blocks come back used.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.check.differences import Difference
from paceline.check.progress import Progress
from paceline.check.replies import CheckPrompt
from paceline.check.subject import Subject
from paceline.drafters.base import DrafterCapabilities, TokenSampler
from paceline.drafters.scripted import ScriptedDrafter
from paceline.engine.outputs import CompletionOutput
from paceline.executors.base import Executor, ForwardBatch
from paceline.kv.block_pool import BlockPool
from paceline.kv.block_table import BlockTable
from paceline.records import Draft
from paceline.sampling.params import SamplingParams
from paceline.tree import ROOT, TokenTree

_AT_ONCE = 4
_RIGHT = 0.6
"""Probability that a node of a random tree is the token that plain decoding committed there."""
_BRANCHING = 0.4
_LATEST_ABORT = 6
"""One request of each batch is aborted after one to this many steps."""


@dataclass(frozen=True, slots=True)
class CacheResult:
    """``num_rows``: rows of logits compared. ``num_refused``: drafted tokens that were rolled back.

    ``lost``: what the block tables' own check said, empty when nothing was wrong with them.
    """

    num_requests: int
    num_rows: int
    num_draft_tokens: int
    num_refused: int
    num_aborted: int
    differences: tuple[Difference, ...]
    lost: str = ""

    @property
    def passed(self) -> bool:
        return not self.differences and not self.lost and self.num_refused > 0


def check_cache(
    subject: Subject,
    prompts: Sequence[CheckPrompt],
    plain: Sequence[CompletionOutput],
    num_rounds: int,
    seed: int,
    progress: Progress,
) -> CacheResult:
    """Run ``num_rounds`` batches of requests; right nodes come from ``plain``, the greedy replies."""
    run = _Run(subject, prompts, plain, random.Random(seed))
    lost = ""
    try:
        for number in range(num_rounds):
            run.round(number)
            progress("cache", num_rounds)
    except AssertionError as error:
        lost = str(error) or "the engine's own check failed"
    ended = run.ended
    drafted = sum(reply.metrics.num_draft_tokens for _, reply in ended)
    accepted = sum(reply.metrics.num_accepted_tokens for _, reply in ended)
    # Many requests end in the same text with the same bits: one look at it will do.
    different = {
        (prompt.ids, reply.token_ids, reply.logit_hashes): (prompt, reply) for prompt, reply in ended
    }
    stale = [_first_stale(subject, *pair) for pair in different.values()]
    differences = tuple(found for found in stale if found is not None)
    rows = sum(len(reply.token_ids) for _, reply in ended)
    return CacheResult(len(ended), rows, drafted, drafted - accepted, run.num_aborted, differences, lost)


class _Run:
    """Batches of requests on one engine. ``ended``: the replies that came to their end."""

    def __init__(
        self,
        subject: Subject,
        prompts: Sequence[CheckPrompt],
        plain: Sequence[CompletionOutput],
        rng: random.Random,
    ) -> None:
        texts = [(*prompt.ids, *reply.token_ids) for prompt, reply in zip(prompts, plain, strict=True)]
        self._prompts = prompts
        self._plain = plain
        self._rng = rng
        self._most = max(1, subject.num_draft_tokens)
        script = RandomTrees(texts, rng, subject.executor.vocab_size)
        self._drafter = ScriptedDrafter(script, DrafterCapabilities(can_branch=True), "random trees")
        self._engine = subject.engine({self._drafter.name: self._drafter})
        self.ended: list[tuple[CheckPrompt, CompletionOutput]] = []
        self.num_aborted = 0

    def round(self, number: int) -> None:
        """Run one batch to its end. Raises ``AssertionError`` when blocks are lost or shared."""
        rng, engine = self._rng, self._engine
        chosen = {f"{number}-{i}": rng.randrange(len(self._prompts)) for i in range(_AT_ONCE)}
        for request_id, index in chosen.items():
            params = SamplingParams(
                temperature=0.0,
                max_tokens=max(2, len(self._plain[index].token_ids)),
                drafter=self._drafter.name,
                num_draft_tokens=rng.randint(1, self._most),
            )
            engine.add_request(request_id, self._prompts[index].ids, params)
        steps_left = rng.randint(1, _LATEST_ABORT)
        while engine.has_unfinished:
            for output in engine.step():
                if output.completion is not None:
                    self.ended.append((self._prompts[chosen[output.request_id]], output.completion))
            engine.check_integrity()
            steps_left -= 1
            if steps_left == 0:
                self.num_aborted += engine.abort(rng.choice(list(chosen))) is not None
        self._drafter.sessions.clear()


class RandomTrees:
    """A script for the scripted drafter: random trees over known texts."""

    def __init__(self, texts: Sequence[tuple[int, ...]], rng: random.Random, vocab_size: int) -> None:
        self._texts = texts
        self._rng = rng
        self._vocab_size = vocab_size

    def __call__(self, known: tuple[int, ...], budget: int, sampler: TokenSampler) -> Draft:
        rng = self._rng
        text = next((text for text in self._texts if text[: len(known)] == known), known)
        tokens: list[int] = []
        parents: list[int] = []
        right: dict[int, int] = {ROOT: 0}  # how many tokens of the text a node's path has, if it follows it
        depth: dict[int, int] = {ROOT: 0}
        for _ in range(rng.randint(0, budget)):
            last = len(tokens) - 1
            parent = rng.randint(ROOT, last) if rng.random() < _BRANCHING else last
            place = len(known) + depth[parent]
            follows = right.get(parent) == depth[parent] and place < len(text) and rng.random() < _RIGHT
            token = text[place] if follows else rng.randrange(self._vocab_size)
            if (parent, token) in zip(parents, tokens, strict=True):
                continue
            node = len(tokens)
            depth[node] = depth[parent] + 1
            right[node] = depth[node] if follows else -1
            tokens.append(token)
            parents.append(parent)
        return Draft(TokenTree(tuple(tokens), tuple(parents)))


def _first_stale(subject: Subject, prompt: CheckPrompt, reply: CompletionOutput) -> Difference | None:
    """Return the first token of a reply whose logits are not those of a fresh prefill."""
    fresh = fresh_hashes(subject.executor, prompt.ids, reply.token_ids)
    for place, (got, wanted) in enumerate(zip(reply.logit_hashes or (), fresh, strict=True)):
        if got != wanted:
            token = reply.token_ids[place]
            text = subject.token_text(token)
            return Difference(
                "bug", place, (token, token), (text, text), what="logits", prompt=prompt.id, subject="cache"
            )
    return None


def fresh_hashes(executor: Executor, prompt: tuple[int, ...], reply: tuple[int, ...]) -> list[str]:
    """Return the hashes (see ``EngineConfig.record_logit_hashes``) of logits behind a text read at once."""
    ids = (*prompt, *reply)[:-1]
    table = BlockTable(BlockPool(executor.num_blocks), executor.block_size)
    table.reserve(len(ids))
    rows = executor.forward(ForwardBatch.chain(ids, 0, table.blocks, len(reply)))
    return [hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest() for row in rows]
