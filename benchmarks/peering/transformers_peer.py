"""Hugging Face transformers in float32 or bfloat16: what most scripts on a CPU still do."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peering.protocol import Generation, PeerSettings, PeerUnavailableError, spread_tokens

LOOKUP_TOKENS = 4


class TransformersPeer:
    """One causal model; a GGUF file is dequantised to float32 when loaded."""

    def __init__(self, settings: PeerSettings) -> None:
        try:
            import torch
            import transformers
        except ImportError as error:
            raise PeerUnavailableError(f"transformers is not installed ({error})") from error
        torch.set_num_threads(settings.threads)
        torch.set_grad_enabled(False)
        self._torch: Any = torch
        self._transformers: Any = transformers
        self._model = self._load(Path(settings.model))
        self._vocab_size = int(self._model.config.get_text_config().vocab_size)

    def _load(self, path: Path) -> Any:
        where, options = (path, {}) if path.is_dir() else (path.parent, {"gguf_file": path.name})
        try:
            model = self._transformers.AutoModelForCausalLM.from_pretrained(
                where, dtype=self._torch.float32, **options
            )
        except (ImportError, ValueError, OSError, KeyError) as error:
            reason = str(error).strip().splitlines()[0]
            raise PeerUnavailableError(f"transformers cannot read this model: {reason}") from error
        return model.eval()

    def describe(self) -> dict[str, str]:
        """Return both versions and torch's instruction path."""
        system = f"torch {self._torch.__version__}, {self._torch.backends.cpu.get_cpu_capability()}, float32"
        return {"version": self._transformers.__version__, "system": system}

    def _timed(self, ids: Sequence[int], cache: Any, keep: int) -> float:
        tokens = self._torch.tensor([list(ids)])
        begin = time.perf_counter()
        self._model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=keep)
        return time.perf_counter() - begin

    def _cache(self) -> Any:
        return self._transformers.DynamicCache(config=self._model.config)

    def forward(self, num_rows: int, depth: int, repeats: int) -> list[float]:
        """See :class:`peering.protocol.Peer`."""
        tokens = spread_tokens(depth + num_rows, self._vocab_size)
        cache = self._cache()
        self._timed(tokens[:depth], cache, 1)
        # A copy each time, as a cache with sliding windows cannot be cut back once it is full.
        return [self._timed(tokens[depth:], copy.deepcopy(cache), 0) for _ in range(repeats)]

    def prompt(self, num_tokens: int, repeats: int) -> list[float]:
        """See :class:`peering.protocol.Peer`."""
        tokens = spread_tokens(num_tokens, self._vocab_size)
        return [self._timed(tokens, self._cache(), 1) for _ in range(repeats)]

    def generate(
        self, prompt: Sequence[int], max_tokens: int, eos: Sequence[int], speculate: bool = False
    ) -> Generation:
        """See :class:`peering.protocol.Peer`; speculation is ``prompt_lookup_num_tokens``."""
        ids = self._torch.tensor([list(prompt)])
        begin = time.perf_counter()
        output = self._model.generate(
            ids,
            attention_mask=self._torch.ones_like(ids),
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=list(eos) or None,
            pad_token_id=0,
            prompt_lookup_num_tokens=LOOKUP_TOKENS if speculate else None,
        )
        seconds = time.perf_counter() - begin
        reply = output[0, len(prompt) :].tolist()
        return Generation(tuple(t for t in reply if t not in set(eos)), seconds)
