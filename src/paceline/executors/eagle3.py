"""An EAGLE-3 head on the processor: catch-up, single forwards, and whole drafts in one native call.

A row of a head is a *pair*: the target's state of token i with the embedding of token i + 1, at position i.
So a batch's ``tokens`` are the second ones of the pairs, and slots, prefix lengths and tails count pairs. A
head behind a sequence of N committed tokens holds N - 1 pairs; what it drafts takes the slots behind them,
and the next catch-up writes over it: nothing is ever moved.

>>> head = Eagle3Executor.load(files, target, num_blocks=64)
>>> logits, states = target.forward_with_states(batch, head.state_layers)
>>> pairs = ForwardBatch.chain(tokens[1:], start=0, blocks=blocks, num_logits=1)
>>> drafted = head.draft(pairs, states, DraftShape(max_nodes=8, max_depth=5, width=3))
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from paceline.config import check_int
from paceline.errors import ConfigError, ModelFileError
from paceline.executors.base import ForwardBatch
from paceline.executors.cpu import MAX_ROWS, CacheType, CpuExecutor, arrays_of, pieces_of
from paceline.executors.native_model import native_head
from paceline.models.eagle3_spec import Eagle3Files
from paceline.native import _core
from paceline.records import FloatArray, IntArray

MAX_NODES = 1024
MAX_DEPTH = MAX_WIDTH = 64
"""Bounds of a draft's shape: far past what any processor verifies, and a few MB of memory."""


@dataclass(frozen=True, slots=True)
class DraftShape:
    """How far a draft may grow (EAGLE-2's dynamic tree, Li et al. 2024, arXiv 2406.16858).

    A node's score is the sum of log-probabilities along its path. On each level the ``width`` best nodes
    propose their ``width`` likeliest successors, down to ``max_depth`` levels or until no path has a score of
    ``min_log_prob``; the ``max_nodes`` best proposals of all levels are the draft. A node with a score below
    ``min_parent_log_prob`` may be one of them but proposes nothing. ``width`` 1 is the greedy chain. Raises
    ``ConfigError`` for sizes out of range.
    """

    max_nodes: int
    max_depth: int
    width: int = 1
    min_log_prob: float = -math.inf
    min_parent_log_prob: float = -math.inf

    def __post_init__(self) -> None:
        check_int("max_nodes", self.max_nodes, 1, MAX_NODES)
        check_int("max_depth", self.max_depth, 1, MAX_DEPTH)
        check_int("width", self.width, 1, MAX_WIDTH)
        for name in ("min_log_prob", "min_parent_log_prob"):
            if math.isnan(getattr(self, name)):
                raise ConfigError(f"{name}=nan: it must be a number, or -inf for no bound")

    @property
    def num_slots(self) -> int:
        """Slots behind the catch-up rows that the block table must have room for."""
        return self.width * (self.max_depth - 1)


@dataclass(frozen=True, slots=True)
class DraftedTree:
    """The nodes of a draft, best first and parents before children.

    ``tokens`` int32 [N]: target ids; ``parents`` int32 [N]: node indices, -1 for the root; ``log_probs``
    float32 [N]: log-probabilities of the paths under the head (over its draft vocabulary), falling.
    """

    tokens: IntArray
    parents: IntArray
    log_probs: FloatArray

    def __len__(self) -> int:
        return len(self.tokens)


class Eagle3Executor:
    """A head of one target. It reads the target's tables where it has none and runs on the same threads."""

    block_size: int = _core.BLOCK_SLOTS

    def __init__(
        self, files: Eagle3Files, model: _core.Model, target: CpuExecutor, num_blocks: int, cache: CacheType
    ) -> None:
        self.spec = files.spec
        self.draft_to_target = np.ascontiguousarray(files.draft_to_target, dtype=np.int32)
        self.state_layers = files.spec.layers_of(target.spec.num_layers)
        self._model = model
        self.decoder = _core.Decoder(
            model=model,
            pool=target.pool,
            path=target.path,
            layers=files.spec.num_layers,
            num_blocks=num_blocks,
            half_cache=cache == "float16",
            max_rows=MAX_ROWS,
        )
        self._drafter = _core.TreeDrafter(self.decoder, self.draft_to_target)
        self._logits: FloatArray = np.empty((0, self.spec.draft_vocab_size), dtype=np.float32)

    @classmethod
    def load(
        cls,
        files: Eagle3Files,
        target: CpuExecutor,
        *,
        num_blocks: int,
        cache_type: CacheType = "float16",
        float32: bool = False,
    ) -> Eagle3Executor:
        """Repack a head's tensors and make room for ``num_blocks`` KV blocks of ``block_size`` pairs.

        Weights keep the storage that ``files`` presents; ``float32`` expands them, as a reference. Raises
        ``ModelFileError`` when tensors and spec do not fit each other or the target, ``ConfigError`` when
        there is no memory.
        """
        try:
            return cls(
                files, native_head(files, target.model, float32=float32), target, num_blocks, cache_type
            )
        except ValueError as error:
            raise ModelFileError(f"the EAGLE-3 head {files.spec.name!r} cannot be used: {error}") from error
        except MemoryError as error:
            slots = num_blocks * cls.block_size
            raise ConfigError(
                f"there is no memory for a head's KV cache of {slots} tokens: ask for fewer"
            ) from error

    @property
    def num_blocks(self) -> int:
        return int(self.decoder.num_blocks)

    @property
    def weight_bytes(self) -> int:
        """Bytes of repacked weights that are the head's own."""
        return int(self._model.weight_bytes)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the KV cache."""
        return int(self.decoder.cache_bytes)

    def project(self, states: FloatArray) -> FloatArray:
        """Return g float32 [T, H], what fc makes of the target's captured ``states`` float32 [T, n * Ht]."""
        projected = np.empty((len(states), self.spec.hidden_size), dtype=np.float32)
        for start in range(0, len(states), MAX_ROWS):
            end = start + MAX_ROWS
            self.decoder.project(states[start:end], projected[start:end])
        return projected

    def catch_up(self, batch: ForwardBatch, states: FloatArray) -> None:
        """Store the keys and values of pairs with true ``states`` [T, n * Ht]; logit rows are not computed.

        For prompts, and wherever nothing is drafted. Rows of several sequences may stand in one batch.
        """
        row = 0
        for piece in pieces_of(batch):
            end = row + len(piece.tokens)
            self.decoder.catch_up(*arrays_of(piece), states[row:end])
            row = end

    def forward(self, batch: ForwardBatch, g: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return logits float32 [R, Vd] and the state to feed back of every row, float32 [T, H].

        ``g`` float32 [T, H]: projected states, or states that an earlier forward gave for drafted tokens.
        The fed-back state is the last layer's output, behind the final norm where ``norm_output`` says so.
        The array of logits may be reused by the next call. Bits of a row depend on its tokens, its states
        and the weights only, as those of :meth:`paceline.executors.base.Executor.forward` do.
        """
        if len(self._logits) < len(batch.logit_rows):
            self._logits = np.empty((len(batch.logit_rows), self.spec.draft_vocab_size), dtype=np.float32)
        logits = self._logits[: len(batch.logit_rows)]
        out = np.empty((len(batch.tokens), self.spec.hidden_size), dtype=np.float32)
        row = wanted = 0
        for piece in pieces_of(batch):
            end, enough = row + len(piece.tokens), wanted + len(piece.logit_rows)
            self.decoder.forward_pairs(*arrays_of(piece), g[row:end], logits[wanted:enough], out[row:end])
            row, wanted = end, enough
        return logits, out

    def draft(self, batch: ForwardBatch, states: FloatArray, shape: DraftShape) -> DraftedTree:
        """Store the pairs of ``batch``, a chain of one sequence, and draft behind the last of them.

        ``states`` float32 [T, n * Ht]: the target's, of the first tokens of the pairs. The block table must
        reach ``shape.num_slots`` slots past the chain. Greedy and certain: the same weights, tokens and
        states give the same draft. Raises ``ValueError`` for NaN logits and for batches that do not fit.
        """
        *before, last = pieces_of(batch)
        done = len(batch.tokens) - len(last.tokens)
        for index, piece in enumerate(before):
            self.decoder.catch_up(*arrays_of(piece), states[index * MAX_ROWS : (index + 1) * MAX_ROWS])
        tokens = np.empty(shape.max_nodes, dtype=np.int32)
        parents = np.empty(shape.max_nodes, dtype=np.int32)
        log_probs = np.empty(shape.max_nodes, dtype=np.float32)
        count = self._drafter.draft(
            *arrays_of(last),
            states[done:],
            shape.max_nodes,
            shape.max_depth,
            min(shape.width, self.spec.draft_vocab_size),
            shape.min_log_prob,
            shape.min_parent_log_prob,
            tokens,
            parents,
            log_probs,
        )
        return DraftedTree(tokens[:count], parents[:count], log_probs[:count])
