"""Paceline itself, measured the way its peers are."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from paceline import LLM, SamplingParams
from paceline.bench.environment import installed_versions
from paceline.bench.llm_engine import prompt_ids
from paceline.executors.base import ForwardBatch
from peering.protocol import Generation, PeerSettings, spread_tokens


class PacelinePeer:
    """One ``LLM``. Forwards go to its executor, replies through the whole engine."""

    def __init__(self, settings: PeerSettings) -> None:
        self._llm = LLM(settings.model, "auto", threads=settings.threads, max_model_len=settings.context)
        self._executor = self._llm.executor
        self._vocab_size = len(self._llm.tokenizer.tokens)

    def describe(self) -> dict[str, str]:
        """Return the version and the instruction path."""
        return {
            "version": installed_versions().get("paceline", "from a checkout"),
            "system": f"instruction path {self._executor.path}",
        }

    def tokenize(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the ids every engine is given for a conversation."""
        return prompt_ids(self._llm, messages)

    def eos(self) -> list[int]:
        """Return the ids that end a reply."""
        return sorted(self._llm.tokenizer.eos_token_ids)

    def _timed(self, tokens: Sequence[int], start: int, all_logits: bool) -> float:
        batch = ForwardBatch.chain(
            tokens, start, range(self._executor.num_blocks), len(tokens) if all_logits else 1
        )
        begin = time.perf_counter()
        self._executor.forward(batch)
        return time.perf_counter() - begin

    def forward(self, num_rows: int, depth: int, repeats: int) -> list[float]:
        """See :class:`peering.protocol.Peer`."""
        tokens = spread_tokens(depth + num_rows, self._vocab_size)
        if depth:
            self._timed(tokens[:depth], 0, all_logits=False)
        return [self._timed(tokens[depth:], depth, all_logits=True) for _ in range(repeats)]

    def prompt(self, num_tokens: int, repeats: int) -> list[float]:
        """See :class:`peering.protocol.Peer`."""
        tokens = spread_tokens(num_tokens, self._vocab_size)
        return [self._timed(tokens, 0, all_logits=False) for _ in range(repeats)]

    def generate(
        self, prompt: Sequence[int], max_tokens: int, eos: Sequence[int], speculate: bool = False
    ) -> Generation:
        """See :class:`peering.protocol.Peer`; drafters forget earlier replies first, as peers do."""
        params = SamplingParams(
            temperature=0.0,
            max_tokens=max_tokens,
            ignore_eos=True,
            stop_token_ids=list(eos),
            drafter="auto" if speculate else "none",
        )
        self._llm.start_afresh()
        self._llm.engine.drafter("auto")
        begin = time.perf_counter()
        (output,) = self._llm.generate([list(prompt)], params, use_tqdm=False)
        seconds = time.perf_counter() - begin
        return Generation(tuple(t for t in output.outputs[0].token_ids if t not in eos), seconds)
