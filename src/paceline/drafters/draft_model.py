"""The draft-model drafter: a small model of the same vocabulary writes a chain ahead of the target.

It has its own executor and KV cache. Tokens are drawn with the request's own sampler, so greedy and coupled
requests get the draft model's choice under the same noise, and sampled ones get the law each token was drawn
from. ``self:N`` drafts with the target's own first N layers.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.config import Settings, check_float
from paceline.drafters.base import DraftContext, DrafterCapabilities
from paceline.drafters.copy_check import Room, copy_agreement, warn_if_low
from paceline.drafters.draft_sequence import DraftSequence
from paceline.drafters.vocabulary import copy_prompt, shared_vocabulary_size
from paceline.errors import DrafterError
from paceline.executors.base import Executor
from paceline.kv.block_pool import BlockPool
from paceline.records import EMPTY_DRAFT, Draft, FloatArray, StepObservation, TokenLaw

logger = logging.getLogger("paceline.drafters")

_COPY_REPEATS = 3
_COPY_WORDS = 24
_LEAST_COPY_WORDS = 8
"""Fewer positions than this say nothing of a pair."""


@dataclass(frozen=True, slots=True)
class DraftModelOptions(Settings):
    """``min_copy_agreement``: floor of the start-up self-test, which warns below it; 0 leaves it out."""

    min_copy_agreement: float = 0.3

    def __post_init__(self) -> None:
        check_float("draft_model: min_copy_agreement", self.min_copy_agreement, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A loaded draft model. ``vocabulary``: the text of each token id as its tokenizer spells it."""

    name: str
    executor: Executor
    vocabulary: Sequence[str]


class DraftModelSession:
    """Drafting for one request.

    The draft model's cache holds a prefix of the committed tokens plus, between propose and observe, the
    drafted ones but the last. ``observe`` truncates it to what was really committed; the next ``propose``
    first computes whatever is missing (catch-up): one token after a rejection, two after full acceptance.
    """

    __slots__ = ("_executor", "_known", "_padded", "_sampler", "_sequence", "_shared")

    def __init__(
        self, executor: Executor, pool: BlockPool, target_vocab_size: int, shared: int, context: DraftContext
    ) -> None:
        self._executor = executor
        self._sampler = context.sampler
        self._known = list(context.prompt_token_ids)
        self._sequence = DraftSequence(executor, pool)
        self._shared = min(shared, executor.vocab_size)
        # Ids the draft model has no row for are never drawn.
        self._padded: FloatArray = np.full(target_vocab_size, -np.inf, dtype=np.float32)

    @property
    def cached(self) -> tuple[int, ...]:
        """The tokens whose keys and values the draft model holds."""
        return tuple(self._sequence.cached)

    def propose(self, budget: int) -> Draft:
        """Return a chain of ``budget`` tokens.

        It is shorter at the end of the draft model's context, and empty while other requests hold so many
        blocks of its cache that this one does not fit.
        """
        length = len(self._known)
        budget = min(budget, self._executor.max_context - length + 1)
        if budget <= 0 or not self._sequence.reserve(length + budget - 1):
            return EMPTY_DRAFT
        tokens: list[int] = []
        laws: list[TokenLaw] = []
        pending: Sequence[int] = self._known[len(self._sequence.cached) :]
        while True:
            logits = self._sequence.extend(pending)[0]
            token, law = self._sampler.draw(self._in_target_ids(logits), tuple(tokens))
            tokens.append(token)
            if law is not None:
                laws.append(law)
            if len(tokens) == budget:
                return Draft.chain(tokens, laws or None)
            pending = tokens[-1:]

    def observe(self, step: StepObservation) -> None:
        """Append the committed tokens and roll the cache back to what they confirm.

        The last committed token is never kept: its row gives the logits that the next draft starts from.
        """
        cached, known = self._sequence.cached, self._known
        confirmed = len(known)
        known.extend(step.committed)
        most = min(len(cached), len(known) - 1)
        confirmed = min(confirmed, most)
        while confirmed < most and cached[confirmed] == known[confirmed]:
            confirmed += 1
        self._sequence.truncate(confirmed)

    def stop(self) -> None:
        """Give the blocks back."""
        self._sequence.release()

    def _in_target_ids(self, logits: FloatArray) -> FloatArray:
        """Return ``logits`` [V of the draft model] as [V of the target], -inf where the draft has no row."""
        if len(logits) == len(self._padded) == self._shared:
            return logits
        self._padded[: self._shared] = logits[: self._shared]
        return self._padded


class DraftModelDrafter:
    """Opens :class:`DraftModelSession` objects that share the draft model's KV blocks.

    Raises ``VocabularyMismatchError`` when ids mean different tokens, ``DrafterError`` when the draft model's
    cache holds no block. Runs the start-up self-test (see ``copy_check``) in free blocks of ``target_pool``;
    without a pool the target's whole cache counts as free, so build it before any request then.
    """

    def __init__(
        self,
        model: DraftModel,
        *,
        target: Executor,
        target_vocabulary: Sequence[str],
        target_pool: BlockPool | None = None,
        options: DraftModelOptions | None = None,
    ) -> None:
        self.options = options or DraftModelOptions()
        self.model = model
        self._target_vocab_size = target.vocab_size
        self._shared = shared_vocabulary_size(target_vocabulary, model.vocabulary, model.name)
        if model.executor.num_blocks <= 0:
            raise DrafterError(f"draft model {model.name!r} has no KV blocks; give its cache at least one")
        self._pool = BlockPool(model.executor.num_blocks)
        if self.options.min_copy_agreement > 0:
            self._self_test(Room(target, target_pool or BlockPool(target.num_blocks)), target_vocabulary)

    @property
    def name(self) -> str:
        return f"draft_model:{self.model.name}"

    @property
    def capabilities(self) -> DrafterCapabilities:
        return DrafterCapabilities(gives_probabilities=True)

    @property
    def num_free_blocks(self) -> int:
        """KV blocks of the draft model that no request holds."""
        return self._pool.num_free

    def start(self, context: DraftContext) -> DraftModelSession:
        """Open a session; the prompt is computed with the first proposal."""
        return DraftModelSession(
            self.model.executor, self._pool, self._target_vocab_size, self._shared, context
        )

    def _self_test(self, target: Room, vocabulary: Sequence[str]) -> None:
        """Warn when the draft model does not copy a text as the target does; the text shrinks to the room."""
        draft = Room(self.model.executor, self._pool)
        room = min(target.num_tokens, draft.num_tokens)
        num_words = min(_COPY_WORDS, room // _COPY_REPEATS)
        if num_words < _LEAST_COPY_WORDS:
            logger.warning(
                "draft model %r was not tested against its target: the KV caches have room for %d tokens now",
                self.model.name,
                room,
            )
            return
        prompt = copy_prompt(vocabulary[: self._shared], num_words, _COPY_REPEATS)
        agreement = copy_agreement(target, draft, prompt, len(prompt) // _COPY_REPEATS)
        warn_if_low(self.model.name, agreement, self.options.min_copy_agreement)
