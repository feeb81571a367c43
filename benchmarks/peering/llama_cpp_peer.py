"""llama.cpp through the C API that the llama-cpp-python package exposes.

The low-level calls are used so that nothing of the Python wrapper is timed: one ``llama_decode`` per forward,
its batch filled beforehand, llama.cpp's own greedy sampler for replies.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from typing import Any

from peering.protocol import Generation, PeerSettings, PeerUnavailableError, spread_tokens

PROMPT_BATCH = 512
LOOKUP_TOKENS = 4


class LlamaCppPeer:
    """One llama.cpp context over one GGUF file."""

    def __init__(self, settings: PeerSettings) -> None:
        try:
            import llama_cpp
        except ImportError as error:
            raise PeerUnavailableError(f"llama-cpp-python is not installed ({error})") from error
        self._c: Any = llama_cpp
        self._settings = settings
        self._depth = -1  # how many of the spread tokens the cache holds; -1: something else
        self._lookup: Any = None
        self._version = llama_cpp.__version__
        self._quiet = llama_cpp.llama_log_callback(lambda _level, _text, _data: None)
        llama_cpp.llama_log_set(self._quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(
            settings.model.encode(), llama_cpp.llama_model_default_params()
        )
        if not self._model:
            raise PeerUnavailableError(f"llama.cpp cannot read {settings.model}")
        self._context = self._open_context(settings)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(PROMPT_BATCH, 0, 1)
        chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_greedy())
        self._sampler = chain

    def _open_context(self, settings: PeerSettings) -> Any:
        params = self._c.llama_context_default_params()
        params.n_ctx = settings.context
        params.n_batch = params.n_ubatch = PROMPT_BATCH
        params.n_threads = params.n_threads_batch = settings.threads
        context = self._c.llama_init_from_model(self._model, params)
        if not context:
            raise PeerUnavailableError(f"llama.cpp cannot open a context of {settings.context} tokens")
        return context

    def describe(self) -> dict[str, str]:
        """Return the package version and llama.cpp's list of compiled-in instruction sets."""
        return {"version": self._version, "system": self._c.llama_print_system_info().decode().strip()}

    def _clear(self, keep: int = 0) -> None:
        memory = self._c.llama_get_memory(self._context)
        if not self._c.llama_memory_seq_rm(memory, 0, keep, -1):
            raise RuntimeError(f"llama.cpp did not truncate its cache to {keep} tokens")

    def _fill(self, tokens: Sequence[int], start: int, all_logits: bool) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = start + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = 1 if all_logits or i == len(tokens) - 1 else 0

    def _decode(self) -> float:
        begin = time.perf_counter()
        status = self._c.llama_decode(self._context, self._batch)
        self._c.llama_synchronize(self._context)
        seconds = time.perf_counter() - begin
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        return seconds

    def _feed(self, tokens: Sequence[int]) -> float:
        """Process ``tokens`` from an empty cache in batches; return the seconds inside llama.cpp."""
        self._clear()
        self._depth = -1
        seconds = 0.0
        for start in range(0, len(tokens), PROMPT_BATCH):
            self._fill(tokens[start : start + PROMPT_BATCH], start, all_logits=False)
            seconds += self._decode()
        return seconds

    def forward(self, num_rows: int, depth: int, repeats: int) -> list[float]:
        """See :class:`peering.protocol.Peer`."""
        tokens = spread_tokens(depth + num_rows, self._vocab_size)
        if self._depth != depth:
            self._feed(tokens[:depth])
            self._depth = depth
        seconds = []
        for _ in range(repeats):
            self._clear(keep=depth)
            self._fill(tokens[depth:], depth, all_logits=True)
            seconds.append(self._decode())
            self._c.llama_get_logits_ith(self._context, num_rows - 1)
        return seconds

    def prompt(self, num_tokens: int, repeats: int) -> list[float]:
        """See :class:`peering.protocol.Peer`."""
        tokens = spread_tokens(num_tokens, self._vocab_size)
        return [self._feed(tokens) for _ in range(repeats)]

    def generate(
        self, prompt: Sequence[int], max_tokens: int, eos: Sequence[int], speculate: bool = False
    ) -> Generation:
        """See :class:`peering.protocol.Peer`; speculation is the Python package's prompt lookup."""
        begin = time.perf_counter()
        tokens = self._looked_up(prompt) if speculate else self._plain(prompt, max_tokens)
        reply: list[int] = []
        for token in tokens:
            if token in eos:
                break
            reply.append(token)
            if len(reply) == max_tokens:
                break
        return Generation(tuple(reply), time.perf_counter() - begin)

    def _plain(self, prompt: Sequence[int], max_tokens: int) -> Iterator[int]:
        self._feed(prompt)
        for position in range(len(prompt), len(prompt) + max_tokens):
            token = int(self._c.llama_sampler_sample(self._sampler, self._context, -1))
            yield token  # the caller stops here when it has enough
            self._fill([token], position, all_logits=True)
            self._decode()

    def _looked_up(self, prompt: Sequence[int]) -> Iterator[int]:
        if self._lookup is None:
            from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

            self._lookup = self._c.Llama(
                self._settings.model,
                n_ctx=self._settings.context,
                n_batch=PROMPT_BATCH,
                n_threads=self._settings.threads,
                n_threads_batch=self._settings.threads,
                draft_model=LlamaPromptLookupDecoding(num_pred_tokens=LOOKUP_TOKENS),
                verbose=False,
            )
        self._lookup.reset()  # or the package finds the last run's prompt in its cache
        yield from self._lookup.generate(list(prompt), top_k=1, temp=0.0)
